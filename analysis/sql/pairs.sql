-- One row for each strategy label and split: its scores beside those of the baseline (a label)
-- for the same dataset, target, model and seed. A cell that several planned episodes share (other
-- settings under one label) is the mean of those that score: it makes one pair, not several.
with cells as (
    select
        p.label, p.dataset, p.package, p.target, p.model, p.seed,
        count(*) as episodes,
        avg(e.branches) filter (where scores(e."end")) as branches
    from $planned p
    left join episodes e using (episode_id)
    group by all
),
pairs as (
    select
        own.*,
        own.branches - baseline.branches as difference,
        own.episodes > 1 or coalesce(baseline.episodes > 1, false) as shared
    from cells own
    left join cells baseline
        on baseline.label = $baseline
        and (baseline.dataset, baseline.target, baseline.model, baseline.seed)
        = (own.dataset, own.target, own.model, own.seed)
)
select
    $by,
    p.label,
    count(*) as cells,
    count(p.difference) as pairs,
    count(*) filter (where p.shared) as shared,
    count(*) filter (where p.difference > 0) as wins,
    count(*) filter (where p.difference = 0) as ties,
    avg(p.difference) as mean_difference,
    case when min(p.difference) = max(p.difference) then 0 else stddev_samp(p.difference) end as sd_difference
from pairs p
group by all
