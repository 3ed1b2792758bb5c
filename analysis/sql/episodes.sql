-- The attempt that counts, exactly one row per episode: the newest attempt whose end scores,
-- else the newest committed one. An episode that several runs hold counts once: in the run
-- named first among those where it scores, else in the run named first.
select * from attempts
qualify row_number() over (partition by episode_id order by scores("end") desc, run, attempt desc) = 1
