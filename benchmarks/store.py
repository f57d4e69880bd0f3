"""How long a build waits for the store: the best record of each kernel, among millions.

    PYTHONPATH=.:tests python -m benchmarks.store [--targets 1000] [--kernels 50] [--trials 1000]

Fills a PostgreSQL server of its own, ranks the records, and times look-ups and saves.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from sqlalchemy import Connection, text
from support.stores import a_record, postgres_in, save_records

from edgekit.base.wording import duration, size
from edgekit.store.database import Store, close_store, open_store, read, write
from edgekit.store.lookup import best_records
from edgekit.store.queries import hash_of
from edgekit.store.ranking import rank_all
from edgekit.store.tuning_runs import Workload

TURNS = 20

_KERNELS = """
INSERT INTO workloads (id, target_sha256, target, version, key, words)
SELECT :target * :kernels + kernel, :hash, :text, 1, 'product-' || kernel, 'convolution'
FROM generate_series(0, :kernels - 1) AS kernel
"""
_RECORDS = """
INSERT INTO tuning_records
    (id, workload_id, device, choice, choice_sha256, measured_at, best_us, own_us)
SELECT md5(:target || '.' || kernel || '.' || trial), :target * :kernels + kernel, 'kitchen',
    '{"family": "product", "tile": "' || repeat('8, ', 8) || '", "unrolled": ' || trial || '}',
    md5(trial::text) || md5(trial::text),
    to_char(timestamp '2026-01-01' + trial * interval '1 s', 'YYYY-MM-DD"T"HH24:MI:SS".000000Z"'),
    50 + 100 * random(), 100
FROM generate_series(0, :kernels - 1) AS kernel, generate_series(1, :trials) AS trial
ORDER BY kernel, md5(trial::text)
"""
_BEFORE = """
ALTER TABLE best_records DROP CONSTRAINT best_records_record_id_fkey;
ALTER TABLE tuning_records DROP CONSTRAINT tuning_records_pkey
"""
_AFTER = """
ALTER TABLE tuning_records ADD PRIMARY KEY (id);
ALTER TABLE best_records ADD FOREIGN KEY (record_id) REFERENCES tuning_records
"""
"""Random keys are sorted once: to insert millions into an index of them takes hours."""


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("targets", 1000), ("kernels", 50), ("trials", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with postgres() as url:
        store = open_store(url)
        seconds = timed(lambda: fill(store, given.targets, given.kernels, given.trials))
        count, taken = read(store, facts)
        print(f"{count:,} records, {size(taken)} with indexes, written in {duration(seconds)}")
        seconds = timed(lambda: write(store, rank_all))
        print(f"all {given.targets * given.kernels:,} kernels ranked anew: {duration(seconds)}")
        targets = [target_of(number % given.targets) for number in range(TURNS)]
        tell("look-up, connection included", [timed(look_up(url, target)) for target in targets])
        tell("PostgreSQL's own time for it", [planned(store, target) for target in targets])
        saves = [timed(saving(store, targets[0], turn)) for turn in range(TURNS)]
        tell("save of a batch of 16 records", saves)
        close_store(store)


@contextmanager
def postgres() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, postgres_in(Path(folder) / "server") as server:
        yield server.url


def target_of(number: int) -> str:
    return f'{{"kind": "target {number}"}}'


def fill(store: Store, targets: int, kernels: int, trials: int) -> None:
    """Write a target's kernels and records in one transaction each, in the order of the index."""
    write(store, lambda connection: connection.execute(text(_BEFORE)))
    for number in range(targets):
        target = target_of(number)
        given = {"target": number, "kernels": kernels, "trials": trials}
        names = {"hash": hash_of(target), "text": target}
        write(store, partial(filled, given={**given, **names}))
    write(store, lambda connection: connection.execute(text(_AFTER)))
    write(store, lambda connection: connection.execute(text("ANALYZE")))


def filled(connection: Connection, given: dict[str, object]) -> None:
    numbers = {name: value for name, value in given.items() if isinstance(value, int)}
    connection.execute(text(_inlined(_KERNELS, numbers)), given)
    # No trigger looks up the kernel of each record.
    connection.execute(text("SET LOCAL session_replication_role = replica"))
    connection.execute(text(_inlined(_RECORDS, numbers)))


def _inlined(sql: str, numbers: dict[str, int]) -> str:
    """Write numbers into SQL, whose types PostgreSQL would have to guess otherwise."""
    for name, value in numbers.items():
        sql = sql.replace(f":{name}", f"{value:d}")
    return sql


def facts(connection: Connection) -> tuple[int, int]:
    count = connection.execute(text("SELECT count(*) FROM tuning_records")).scalar_one()
    taken = connection.execute(text("SELECT pg_total_relation_size('tuning_records')")).scalar_one()
    return int(count), int(taken)


def look_up(url: str, target: str) -> Callable[[], object]:
    return lambda: best_records(target, 1, url)


def planned(store: Store, target: str) -> float:
    """Return the seconds in which PostgreSQL plans and runs the look-up."""
    from edgekit.store.queries import BEST_OF

    sql = text("EXPLAIN (ANALYZE, SUMMARY, FORMAT JSON) " + BEST_OF)
    given = {"target": hash_of(target), "version": 1}
    (plan,) = read(store, lambda connection: connection.execute(sql, given).scalar_one())
    return float(plan["Planning Time"] + plan["Execution Time"]) / 1000


def saving(store: Store, target: str, turn: int) -> Callable[[], object]:
    workload = Workload("product-0", target, 1, "convolution")
    first = 10_000_000 + 16 * turn
    records = [a_record(first + n, workload=workload) for n in range(16)]
    return lambda: save_records(store, records)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def tell(what: str, seconds: list[float]) -> None:
    low, middle, high = (1000 * f(seconds) for f in (min, median, max))
    print(f"{what}: {middle:.1f} ms ({low:.1f} to {high:.1f}, {len(seconds)} times)")


if __name__ == "__main__":
    main()
