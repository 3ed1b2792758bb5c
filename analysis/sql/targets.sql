-- One row per planned target and image: what is planned, and what a worker found in the image
-- (version, file, branches_total, lines_total, mutants_total, source; null until one has looked).
with wanted as (
    select min(run) as run, dataset, target, any_value(package) as package, any_value(image) as image, image_digest
    from parts.planned
    group by dataset, target, image_digest
),
found as (
    select
        dataset,
        target,
        image_digest,
        any_value(version) as version,
        any_value(file) as file,
        any_value(branches_total) as branches_total,
        any_value(lines_total) as lines_total,
        any_value(mutants_total) as mutants_total,
        any_value(source) as source
    from parts.targets
    group by dataset, target, image_digest
)
select
    run, dataset, target, package, version, image, image_digest,
    file, branches_total, lines_total, mutants_total, source
from wanted
left join found using (dataset, target, image_digest)
