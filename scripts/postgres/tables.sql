-- One wide table, one of 32 partitions, and one of a single row.
create table sales as
select n as id,
       (n % 50 + 1)::numeric(15, 2) as quantity,
       (900 + n * 13 % 100000 / 10.0)::numeric(15, 2) as price,
       (n % 11 / 100.0)::numeric(15, 2) as discount,
       (n % 9 / 100.0)::numeric(15, 2) as tax,
       (array['R', 'A', 'N'])[n % 3 + 1]::char(1) as is_returned,
       (array['O', 'F'])[n % 2 + 1]::char(1) as status,
       date '1992-01-02' + n % 2500 as shipped,
       n % 100 as a, n % 97 as b, n % 89 as c, n * 0.5::float8 as d, (n % 7)::int8 as e
from generate_series(1, 1000000) n;

create table parted (k int, a int, b int, c float8) partition by range (k);
do $$
begin
  for n in 0..31 loop
    execute format('create table parted_%s partition of parted for values from (%s) to (%s)', n, n * 10000, (n + 1) * 10000);
  end loop;
end $$;
insert into parted select n % 320000, n % 100, n % 97, n * 0.25 from generate_series(1, 320000) n;

create table one as select 1 as x, 2 as y;
vacuum analyze;
