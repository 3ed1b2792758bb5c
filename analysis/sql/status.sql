-- How runs stand, by strategy label and model, and (everything = true) in all; the failed
-- episodes by their end.
with planned_or_met as (
    select
        coalesce(p.episode_id, e.episode_id) as episode_id,
        coalesce(p.label, e.label) as label,
        coalesce(p.model, e.model) as model,
        p.episode_id is not null as is_planned,
        e."end",
        e.branches
    from planned p
    full join episodes e using (episode_id)
),
stepped as (
    select episode_id, count(*) as steps, min("at") as first_at, max("at") as last_at
    from all_steps
    group by episode_id
),
called as (
    select
        episode_id,
        count(*) as calls,
        count(*) filter (where cost_usd is null) as unpriced,
        sum(cost_usd) as known_usd
    from all_calls
    where not replayed and (error is null or cost_usd is not null)
    group by episode_id
)
select
    grouping(label) = 1 as everything,
    label,
    model,
    count(*) filter (where is_planned) as planned,
    count(*) filter (where is_planned and scores("end")) as done,
    count(*) filter (where is_planned and not scores("end")) as failed,
    count(*) filter (where "end" is null) as pending,
    count(*) filter (where not is_planned) as unplanned,
    $ends,
    avg(branches) filter (where is_planned and scores("end")) as branches,
    coalesce(sum(steps), 0)::bigint as steps,
    epoch(max(last_at) - min(first_at)) as seconds,
    coalesce(sum(calls), 0)::bigint as calls,
    coalesce(sum(unpriced), 0)::bigint as unpriced,
    coalesce(sum(known_usd), 0.0) as known_usd
from planned_or_met
left join stepped using (episode_id)
left join called using (episode_id)
group by grouping sets ((label, model), ())
order by everything, label, model
