-- For live progress: of each episode the steps of its newest attempt that has any, committed
-- or not; of several runs, those of the run named first.
with newest as (
    select episode_id, min({'run': run, 'before': -attempt}) as chosen
    from all_steps
    group by episode_id
)
select * from all_steps
where (run, episode_id, attempt) in (select (chosen.run, episode_id, -chosen.before) from newest)
