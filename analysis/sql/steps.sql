-- Steps of the attempts that count (see episodes).
select * from all_steps
where (run, episode_id, attempt) in (select (run, episode_id, attempt) from episodes)
