"""One trial: a Ray Train gang whose workers run the loop, replicate after replicate.

`launch` is the Tune function of a trial, a small process that starts the gang and waits for it. `work`
runs in each worker. Rank 0 takes the trial over in the ledger, reports to it, and ends it there.
Metrics do not pass through Tune or Train: their report queues can hang and lose steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.engine.leftovers import clear
from study.protocol.folder import StudyFolder, TrialFolder, stored_replicate
from study.protocol.messages import ActorName, Assignment, GangSetting, Outcome, Trouble
from study.protocol.states import ReplicateState
from study.spec import Resources
from trainables.errors import told
from trainables.faults import Fault, fault_of, lacks_device_memory, sizes
from trainables.patience import answer

if TYPE_CHECKING:
    from trainables import loop

log = logging.getLogger(__name__)

OWN_FAILURES = 3
"""Lost workers that a trial survives on a cluster of the study's own."""
SHARED_FAILURES = 30
"""Lost workers that a trial survives on a cluster whose nodes come and go: a node that is lost takes workers with it. A
node that Ray was told will be taken away does not count."""
COLLECTIVE_WAIT_S = 3 * 3600.0
"""How long ranks wait for each other: longer than rank 0 is patient with an object store, while the others wait."""


def ledger_handle(actor: ActorName) -> Any:
    """The ledger's actor."""
    import ray

    return ray.get_actor(actor.name, actor.namespace)


def launch(config: dict[str, Any]) -> None:
    """Tune function: run the gang of trial `config["number"]`, handed out under `config["ticket"]`, to its end.

    `config["setting"]` is the `GangSetting` of all gangs, `config["avoid"]` are ids of nodes that it must not go to.
    """
    from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig

    from study.engine.capacity import elsewhere, per_worker
    from study.engine.gang import Gang
    from study.engine.lost_gangs import LostGang

    setting: GangSetting = config["setting"]
    resources = setting.resources
    ledger = ledger_handle(setting.ledger)
    failures = OWN_FAILURES if setting.own_cluster else SHARED_FAILURES
    trainer = Gang(
        work,
        own_cluster=setting.own_cluster,
        train_loop_config={"number": config["number"], "ticket": config["ticket"], "setting": setting},
        scaling_config=ScalingConfig(
            num_workers=resources.workers,
            use_gpu=resources.gpus_per_worker > 0,
            resources_per_worker=per_worker(resources),
            placement_strategy=resources.placement,
            accelerator_type=resources.accelerator,
            label_selector=resources.labels | elsewhere(config["avoid"]) or None,
        ),
        run_config=RunConfig(
            name=f"{setting.launch}-{config['number']:04d}",
            storage_path=setting.scratch,
            # A start that fails is the ledger's to repeat: meanwhile others may have the room.
            failure_config=FailureConfig(max_failures=failures, controller_failure_limit=0),
        ),
    )
    try:
        trainer.fit()
    except Exception as error:
        log.exception("the gang of trial %d was lost", config["number"])
        lost = LostGang.of(error)
        number, ticket = config["number"], config["ticket"]
        if lost.trouble is not None:
            answer(lambda: ledger.trouble.remote(number, None, lost.trouble, ticket))
        elif lost.before_its_start:
            answer(lambda: ledger.give_back.remote(number, ticket, lost.reason, lost.lacked_room))
        else:
            answer(lambda: ledger.abandon.remote(number, lost.reason, ticket))


def work(config: dict[str, Any]) -> None:
    """One worker of the gang of a trial."""
    import ray
    import ray.train
    from ray.train.collective import broadcast_from_rank_zero

    number: int = config["number"]
    setting: GangSetting = config["setting"]
    ledger = ledger_handle(setting.ledger)
    here = ray.train.get_context()
    rank, world_size = here.get_world_rank(), here.get_world_size()
    ticket = config["ticket"]
    begun: Assignment | None = answer(lambda: ledger.begin.remote(number, ticket)) if rank == 0 else None
    if world_size > 1:
        begun = broadcast_from_rank_zero(begun)
    if begun is None:
        return
    # A gang that hangs cannot be asked to end.
    worker, node = ray.get_runtime_context().current_actor, ray.get_runtime_context().get_node_id()
    answer(lambda: ledger.seat.remote(number, begun.attempt, worker, node))
    try:
        with _log_file(StudyFolder(Path(setting.storage)).trial_log(number), rank):
            outcome = _train(begun, number, setting.resources, rank, world_size, ledger)
    except Exception as error:
        if _peer_lost(error, world_size):
            raise
        folder = None if begun.store else Path(setting.storage)
        kind = fault_of(error, folder)
        if kind is None:
            failed = _what_failed(error, begun)
            answer(lambda: ledger.finish.remote(number, begun.attempt, None, failed))
            if world_size == 1:
                # Other ranks may be writing still: what these leave is the next gang's to remove.
                clear(ledger)
        else:
            trouble = Trouble(kind, told(error, 500), node if kind == Fault.NODE else None)
            answer(lambda: ledger.trouble.remote(number, begun.attempt, trouble))
        if world_size > 1:
            # The other ranks wait in a collective; Train ends them. Its retry finds the trial ended.
            raise
        return
    if rank == 0:
        answer(lambda: ledger.finish.remote(number, begun.attempt, outcome))
        clear(ledger)


def _what_failed(error: Exception, begun: Assignment) -> str:
    """The error of a trial in one line; a lack of memory with what the memory of a step depends on."""
    if lacks_device_memory(error):
        return (
            f"the device has not enough memory for a step with {sizes(begun.config)}; ask for less of these "
            f"({told(error, 200)})"
        )
    return f"{type(error).__name__}: {told(error, 500)}"


def _train(begun: Assignment, number: int, resources: Resources, rank: int, world_size: int, ledger: Any) -> Outcome:
    """Run the replicates that are left, one after the other; how the last of them ended."""

    from study.engine.gang import taken_away
    from trainables import distributed, loop, trainers
    from trainables.context import LedgerContext, use_threads, worker_device
    from trainables.encoders import computed_in, in_precision
    from trainables.machine import Machine

    recipe_module = trainers.module(begun.trainer, "recipe")
    config = trainers.module(begun.trainer, "config").Config(**begun.config)
    use_threads(config.threads or int(resources.cpus_per_worker))
    device = worker_device(resources.gpus_per_worker)
    if config.precision == "auto":
        config = in_precision(config, answer(lambda: ledger.compute_in.remote(computed_in("auto", device))), device)
    attempt, written = begun.attempt, TrialFolder(Path(begun.folder))
    outcome: Outcome | None = None
    with _process_group(rank, world_size, device):
        for replicate, seed in enumerate(begun.seeds):
            store = begun.store and stored_replicate(begun.store, replicate)
            with _folder(written.replicate(replicate).path, store, attempt, rank) as folder:
                context = LedgerContext(
                    seed=seed,
                    folder=folder,
                    store=store,
                    study=begun.study,
                    device=device,
                    attempt=attempt,
                    rank=rank,
                    world_size=world_size,
                    send=partial(ledger.report.remote, number, attempt, replicate),
                    send_facts=partial(ledger.describe.remote, number, attempt, replicate),
                    send_phase=partial(ledger.alive.remote, number, attempt),
                    notice=taken_away,
                    machine=Machine(device) if begun.system_metrics and rank == 0 else None,
                )
                outcome = _told(loop.run(recipe_module, config, context), stored=store is not None)
            go_on = outcome.state == ReplicateState.COMPLETE
            if rank == 0 and outcome.state != ReplicateState.STOPPED:
                told_of = partial(ledger.replicate_ended.remote, number, attempt, replicate, outcome)
                go_on = answer(told_of)
            if not distributed.broadcast_object(go_on):
                break
    assert outcome is not None, "a study has a seed"
    return outcome


def _told(ended: loop.Result, stored: bool) -> Outcome:
    """The outcome of a replicate as the ledger is told it; values per item go along only where the ledger has to store
    them (`stored`), because no folder does."""
    return Outcome(
        state=ReplicateState(ended.state),
        reason=ended.reason,
        step=ended.step,
        values=ended.values,
        per_item=ended.per_item if stored else None,
        seconds_per_step=ended.seconds_per_step,
        seconds=ended.seconds,
    )


@contextmanager
def _folder(shared: Path, store: str | None, attempt: int, rank: int) -> Iterator[Path]:
    """Where a replicate writes: its folder in the storage, or a working copy of what an object store keeps."""
    if store is None:
        yield shared
        return
    from trainables.stored_checkpoints import working_folder

    with working_folder(store, attempt, rank) as folder:
        yield folder


@contextmanager
def _process_group(rank: int, world_size: int, device: Any) -> Iterator[None]:
    """A gloo or nccl group over the gang; nothing for a gang of one."""
    if world_size == 1:
        yield
        return
    import ray
    import torch.distributed as dist
    from ray.train.collective import broadcast_from_rank_zero

    host = ray.util.get_node_ip_address()
    if rank == 0:
        # Port 0: the store takes a free one itself, so that no other process can take it in between.
        store = dist.TCPStore(host, 0, world_size, is_master=True, wait_for_workers=False)
        broadcast_from_rank_zero((host, store.port))
    else:
        master, port = broadcast_from_rank_zero(None)
        store = dist.TCPStore(master, port, world_size, is_master=False)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=COLLECTIVE_WAIT_S),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _log_file(path: Path, rank: int) -> Iterator[None]:
    """Python logging of this worker goes to a file of its trial in the study's storage."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(f"%(asctime)s rank {rank} %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.getLogger("trainables").setLevel(logging.INFO)
    try:
        yield
    except Exception:
        log.exception("failed on rank %d", rank)
        raise
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


def _peer_lost(error: Exception, world_size: int) -> bool:
    """Whether a rank failed only because another one is gone, or the ledger is: a fault, not an error of the trial."""
    import ray
    import torch.distributed as dist

    if isinstance(error, (ray.exceptions.RayActorError, ray.exceptions.RaySystemError)):
        return True
    text = str(error).lower()
    return world_size > 1 and (
        isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "nccl", "connection closed by peer"))
    )
