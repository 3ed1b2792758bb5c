-- Every committed attempt of every episode, as the runs hold it.
select * from parts.episodes
