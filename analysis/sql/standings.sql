-- One row for each strategy label and split: what is planned, how it ended, and sums and
-- moments over the planned episodes that score.
select
    $by,
    p.label,
    list_sort(list(distinct p.model)) as models,
    count(*) as planned,
    count(*) filter (where scores(e."end")) as done,
    count(*) filter (where not scores(e."end")) as failed,
    count(*) filter (where e."end" = 'infra_error') as infra,
    count(distinct p.target) filter (where scores(e."end")) as targets,
    count(e.branches) filter (where scores(e."end")) as measured,
    avg(e.branches) filter (where scores(e."end")) as mean_branches,
    stddev_samp(e.branches) filter (where scores(e."end")) as sd_branches,
    avg(e.lines) filter (where scores(e."end")) as mean_lines,
    sum(e.passed) filter (where scores(e."end")) as passed,
    sum(e.executions) filter (where scores(e."end")) as executions,
    sum(e.branches) filter (where scores(e."end") and e.branches_total is not null) as covered,
    sum(e.branches_total) filter (where scores(e."end") and e.branches is not null) as coverable,
    count(e.mutants_killed) filter (where scores(e."end") and e.mutants_total > 0) as suites,
    avg(e.suite_size) filter (where scores(e."end") and e.mutants_total > 0) as mean_size,
    avg(e.mutants_killed / nullif(e.mutants_total, 0)) filter (where scores(e."end")) as mean_mutation,
    avg(e.suite_lines / nullif(e.lines_total, 0) * e.mutants_killed / nullif(e.mutants_total, 0))
        filter (where scores(e."end")) as mean_hv,
    sum(e.cost_usd) filter (where scores(e."end")) as known_usd,
    count(*) filter (where scores(e."end") and e.cost_usd is null) as unpriced
from $planned p
left join episodes e using (episode_id)
group by all
