-- One row per planned episode, of the run named first among those that planned it.
select * from parts.planned
qualify row_number() over (partition by episode_id order by run) = 1
