-- Scripts and suites, each text once.
select min(run) as run, code_sha, any_value(text) as text
from parts.codes
group by code_sha
