-- Mutants run by the attempts that count (see episodes).
select * from parts.mutants
where (run, episode_id, attempt) in (select (run, episode_id, attempt) from episodes)
