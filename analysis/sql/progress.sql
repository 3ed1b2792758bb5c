-- How far each run is, by strategy (and its label) and model: planned = done + failed + pending.
-- done: the attempt that counts has an end that scores; failed: it has another end; pending: no
-- attempt is committed. An episode that has a row but was never planned is none of these: it is
-- counted apart, as unplanned.
select
    coalesce(p.run, e.run) as run,
    coalesce(p.strategy, e.strategy) as strategy,
    coalesce(p.label, e.label) as label,
    coalesce(p.model, e.model) as model,
    count(p.episode_id) as planned,
    count(*) filter (where p.episode_id is not null and scores(e."end")) as done,
    count(*) filter (where p.episode_id is not null and not scores(e."end")) as failed,
    count(*) filter (where e.episode_id is null) as pending,
    count(*) filter (where p.episode_id is null) as unplanned
from planned p
full join episodes e using (episode_id)
group by all
