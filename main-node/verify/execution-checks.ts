import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { randomFraction, type Runtime, type Timer } from '../../shared/base/runtime/runtime.js';
import type { PeerProblem, Placement, Verification } from '../../shared/wire/messages.js';
import type { PlacedWorkers, WorkerOrders } from '../cluster/placed-workers.js';
import { answerOf, type ExpertOutcome } from '../pass/expert-dispatcher.js';
import type { LayerStep } from '../pass/expert-work.js';
import { drawnCheck, messageOfCheck, type DrawnCheck } from './drawn-check.js';
import { disputeOf, judgeCheck, provedLie, type CheckOpinion } from './judge-check.js';
import { obstacleOf, secondWorkers } from './second-workers.js';

/** Most checks that wait for their time. A further one takes the place of a drawn one of them, so that no time of the day is safe to lie in. */
export const MAX_WAITING_CHECKS = 64;
/** Most bytes of the rows and outputs of waiting checks. */
export const MAX_WAITING_BYTES = 32 * 1024 * 1024;
/** Most checks that run at a time. */
export const MAX_RUNNING_CHECKS = 8;
/** A check waits for a time that is drawn between these, so that it does not follow its execution in a way that shows. */
export const LEAST_PAUSE_MS = 10;
export const MOST_PAUSE_MS = 500;
/** Most differences that nobody could decide which are shown as problems. */
const MAX_DISPUTES = 16;

/** The parts of main that checks use. */
export interface ExecutionCheckOptions {
  /** The share of executions that is drawn, above 0. */
  readonly share: number;
  readonly workers: PlacedWorkers;
  /** Id of the worker in main's own process; empty: there is none. */
  readonly ownWorkerId: string;
  /** True while main has no sequence: a load takes no slot from an answer then. */
  readonly isIdle: () => boolean;
  readonly nextSequence: () => number;
  /** Computes the execution on main's own device. */
  readonly runOnMain: (check: DrawnCheck) => Promise<Uint8Array>;
  readonly runtime: Runtime;
  readonly log: Logger;
}

/** An opinion, and the connection to its worker; null: it is of main's device. */
interface LinkedOpinion extends CheckOpinion {
  readonly link: WorkerOrders | null;
}

interface Dispute {
  readonly opinions: readonly LinkedOpinion[];
  readonly check: DrawnCheck;
}

/**
 * Has other workers run a share of the executions again, after their results were used, and compares the bits. No pass waits for it. A worker whose
 * values others prove wrong is set aside, and the rows that it took part in go (PlacedWorkers.distrust).
 */
export class ExecutionChecks {
  private readonly waiting = new Map<DrawnCheck, Timer>();
  private readonly running = new Set<Promise<void>>();
  /** Sequences of checks that have run, whose end their workers have not been told yet. */
  private readonly ending = new Map<() => void, Timer>();
  private readonly disputes: Dispute[] = [];
  private readonly ended = new AbortController();
  private readonly counts = { agreed: 0, differed: 0, dropped: 0, impossible: 0 };
  private waitingBytes = 0;
  /** A check runs for which its worker has to load the expert. */
  private isLoading = false;
  private obstacle: string | null = null;

  constructor(private readonly options: ExecutionCheckOptions) {}

  get status(): Verification {
    const { share, workers } = this.options;
    return { share, ...this.counts, open: this.openCount, obstacle: obstacleOf(workers.placement) };
  }

  /** Checks that wait, run, or have run and not ended. */
  get openCount(): number {
    return this.waiting.size + this.running.size + this.ending.size;
  }

  /** Differences that nobody could decide, while the workers of both sides are still connected. */
  problems(): PeerProblem[] {
    const { workers } = this.options;
    const placed = new Map((workers.placement?.workers ?? []).map(({ id, address }) => [id, address]));
    return this.disputes.flatMap(({ opinions, check }) => {
      if (!opinions.every(({ workerId, link }) => link !== null && workers.worker(workerId) === link)) return [];
      return opinions.map(({ workerId: id }): PeerProblem => {
        const others = opinions.flatMap(({ workerId }) => (workerId === id ? [] : [workerId]));
        return { address: placed.get(id) ?? '', id, code: 'WORKERS_DISAGREE', message: disputeOf(check.work, others) };
      });
    });
  }

  /** Says in the log, once for each reason, that nothing can be compared. */
  placementChanged(): void {
    const { workers, log, share } = this.options;
    const obstacle = obstacleOf(workers.placement);
    if (obstacle === this.obstacle) return;
    this.obstacle = obstacle;
    if (obstacle !== '') log.warn('executions cannot be compared', { verify_share: share, why: obstacle });
    else log.info('a share of executions is run again by other workers', { verify_share: share });
  }

  /** The execution's output has been taken. Copies what a check needs, if the execution is drawn. */
  ran(step: LayerStep, outcome: ExpertOutcome): void {
    const { share, workers, runtime } = this.options;
    if (this.ended.signal.aborted || randomFraction(runtime) >= share) return;
    const { placement } = workers;
    const link = workers.worker(outcome.workerId);
    if (placement === null || link === null) return this.drop();
    if (secondWorkers(placement, outcome.work, outcome.workerId).length === 0) {
      this.counts.impossible += 1;
      return;
    }
    const check = drawnCheck(step, outcome, link);
    // It would push out all others, and find no place itself.
    if (check.bytes > MAX_WAITING_BYTES) return this.drop();
    while (!this.hasRoomFor(check)) this.dropOne();
    this.wait(check);
  }

  /** Ends all checks. Resolves when none runs any more. */
  async stop(): Promise<void> {
    this.ended.abort();
    for (const timer of this.waiting.values()) timer.cancel();
    this.waiting.clear();
    this.waitingBytes = 0;
    await Promise.all(this.running);
    for (const end of [...this.ending.keys()]) end();
  }

  private hasRoomFor({ bytes }: DrawnCheck): boolean {
    return this.waiting.size < MAX_WAITING_CHECKS && this.waitingBytes + bytes <= MAX_WAITING_BYTES;
  }

  private drop(): void {
    this.counts.dropped += 1;
  }

  private dropOne(): void {
    const drawn = this.options.runtime.randomInt(this.waiting.size);
    this.take(requirePresent([...this.waiting.keys()][drawn], 'one of the waiting checks is drawn.'));
    this.drop();
  }

  private pauseMs(): number {
    return LEAST_PAUSE_MS + this.options.runtime.randomInt(MOST_PAUSE_MS - LEAST_PAUSE_MS);
  }

  private wait(check: DrawnCheck): void {
    this.waitingBytes += check.bytes;
    this.waiting.set(
      check,
      this.options.runtime.after(this.pauseMs(), () => this.due(check)),
    );
  }

  private take(check: DrawnCheck): void {
    this.waiting.get(check)?.cancel();
    this.waiting.delete(check);
    this.waitingBytes -= check.bytes;
  }

  /** A check that cannot run now waits once more. */
  private due(check: DrawnCheck): void {
    this.take(check);
    const { placement } = this.options.workers;
    const others = placement === null ? [] : secondWorkers(placement, check.work, check.workerId);
    if (placement === null || others.length === 0) return this.drop();
    const cached = others.filter((id) => this.isCached(check, id));
    const mayLoad = this.options.isIdle() && !this.isLoading;
    const candidates = cached.length > 0 ? cached : mayLoad ? others : [];
    const workerId = candidates[this.options.runtime.randomInt(candidates.length)];
    if (workerId === undefined || this.running.size >= MAX_RUNNING_CHECKS) return this.wait(check);
    const run = this.run(check, { workerId, placement, loads: cached.length === 0 }).finally(() =>
      this.running.delete(run),
    );
    this.running.add(run);
  }

  private isCached({ work: { layer, expert } }: DrawnCheck, id: string): boolean {
    return this.options.workers.worker(id)?.cached?.has(layer, expert) === true;
  }

  /** Never rejects. */
  private async run(
    check: DrawnCheck,
    { workerId, placement, loads }: { workerId: string; placement: Placement; loads: boolean },
  ): Promise<void> {
    const { log } = this.options;
    this.isLoading ||= loads;
    let second: LinkedOpinion | null = null;
    try {
      second = await this.ask(check, workerId, placement);
    } finally {
      if (loads) this.isLoading = false;
    }
    if (second === null) return this.drop();
    const { workerId: id, link, output } = check;
    const first = { workerId: id, link, output, isMains: id === this.options.ownWorkerId };
    try {
      await this.compare(check, [first, second]);
    } catch (thrown) {
      log.error('a difference between workers could not be decided', { error: toOdmoeError(thrown) });
    }
  }

  /** Null: the worker gave no result. */
  private async ask(check: DrawnCheck, workerId: string, placement: Placement): Promise<LinkedOpinion | null> {
    const { workers, nextSequence, ownWorkerId, log } = this.options;
    const link = workers.worker(workerId);
    if (link === null) return null;
    const { message, sequences } = messageOfCheck(check, nextSequence);
    try {
      const { failure, output } = await answerOf(link, message, placement.epoch, this.ended.signal);
      if (failure === null) return { workerId, link, output, isMains: workerId === ownWorkerId };
      log.debug('a check got no result', { worker: workerId, ...failure });
    } catch (thrown) {
      log.debug('a check got no result', { worker: workerId, error: toOdmoeError(thrown) });
    } finally {
      this.endLater(link, sequences);
    }
    return null;
  }

  /** Tells the worker some time later that the sequences have ended, as those of answers do not end with an execute either. */
  private endLater(link: WorkerOrders, sequences: readonly number[]): void {
    const end = (): void => {
      this.ending.get(end)?.cancel();
      this.ending.delete(end);
      for (const sequence of sequences) link.sendEnd(sequence);
    };
    this.ending.set(end, this.options.runtime.after(this.pauseMs(), end));
  }

  private async compare(check: DrawnCheck, given: readonly LinkedOpinion[]): Promise<void> {
    const opinions = [...given];
    const asked = new Set(given.map(({ workerId }) => workerId));
    let verdict = judgeCheck<LinkedOpinion>(opinions);
    if (verdict.kind === 'agreed') {
      this.counts.agreed += 1;
      return;
    }
    this.counts.differed += 1;
    let next = verdict.kind === 'open' ? await this.opinionOfMain(check) : null;
    while (verdict.kind === 'open') {
      next ??= await this.askFurther(check, asked);
      if (next === null) break;
      opinions.push(next);
      verdict = judgeCheck<LinkedOpinion>(opinions);
      next = null;
    }
    this.setAside(check, verdict.liars, verdict.witnesses);
    if (verdict.kind === 'open') this.dispute(check, verdict.witnesses);
  }

  private setAside(check: DrawnCheck, liars: readonly LinkedOpinion[], witnesses: readonly LinkedOpinion[]): void {
    const { workers, log } = this.options;
    const { layer, expert } = check.work;
    const sequences = [...new Set(check.rows.map(({ sequence }) => sequence))];
    for (const { workerId, link } of liars) {
      // Answers that have ended cannot be called back: the log names all that used the output.
      const used = workerId === check.workerId ? { sequences } : {};
      log.warn('a check has found wrong values', { worker: workerId, layer, expert, ...used });
      if (link !== null) workers.distrust(link, provedLie(check.work, witnesses));
    }
  }

  /** Null: main's device cannot run it now. */
  private async opinionOfMain(check: DrawnCheck): Promise<LinkedOpinion | null> {
    try {
      const output = await this.options.runOnMain(check);
      return { workerId: "main's own device", link: null, output, isMains: true };
    } catch (thrown) {
      this.options.log.warn('main cannot say itself which worker is right', { error: toOdmoeError(thrown) });
      return null;
    }
  }

  /** The opinion of a worker that was not asked, one that has the expert if possible; null: no other worker gives one. */
  private async askFurther(check: DrawnCheck, asked: Set<string>): Promise<LinkedOpinion | null> {
    for (;;) {
      const { placement } = this.options.workers;
      if (placement === null || this.ended.signal.aborted) return null;
      const near = secondWorkers(placement, check.work, check.workerId);
      const left = [...near, ...placement.workers.map(({ id }) => id)].find((id) => !asked.has(id));
      if (left === undefined) return null;
      asked.add(left);
      const opinion = await this.ask(check, left, placement);
      if (opinion !== null) return opinion;
    }
  }

  private dispute(check: DrawnCheck, opinions: readonly LinkedOpinion[]): void {
    const workers = opinions.map(({ workerId }) => workerId);
    const { layer, expert } = check.work;
    this.options.log.warn('workers give different values, and nobody could say which are right', {
      workers,
      layer,
      expert,
    });
    this.disputes.push({ opinions: opinions.map((one) => ({ ...one, output: new Uint8Array() })), check });
    if (this.disputes.length > MAX_DISPUTES) this.disputes.shift();
  }
}
