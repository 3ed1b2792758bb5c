-- Every step that was recorded, of uncommitted attempts too.
select * from parts.steps
