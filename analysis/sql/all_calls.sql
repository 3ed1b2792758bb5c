-- Every model call that was recorded, of uncommitted attempts too.
select * from parts.calls
