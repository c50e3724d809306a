import { OdmoeError, toOdmoeError } from '../../shared/errors/index.js';
import type { Logger } from '../../shared/log/logger.js';
import { chooseReplacement } from '../../shared/placement/index.js';
import type { ExecuteResult, Placement } from '../../shared/rpc/messages.js';
import type { ExpertWork } from './worker-link.js';

/** What the dispatcher needs of a roster and its links. */
export interface WorkerDirectory {
  readonly placement: Placement | null;
  worker(id: string): { execute(work: ExpertWork, epoch: number): Promise<ExecuteResult> } | null;
  outstanding(): ReadonlyMap<string, number>;
  waitForPlacement(graceMs: number, signal: AbortSignal): Promise<Placement>;
}

export interface ExpertOutcome {
  result: ExecuteResult;
  /** The work had to be sent more than once, or to another worker than the one asked for. */
  resent: boolean;
}

/** A piece of work that has failed on so many connections is itself the likely cause. */
export const MAX_ATTEMPTS = 32;

/** Failures that are remembered as logged. */
const MAX_REPORTED = 4096;

/**
 * Sends expert work to a worker and, when that worker is lost or cannot do it, to another one, under the current epoch,
 * until it is done. The result's bits do not depend on who computed it.
 */
export class ExpertDispatcher {
  /** Failures logged, by worker, expert and code; the oldest are forgotten. */
  private readonly reported = new Set<string>();

  constructor(
    private readonly directory: WorkerDirectory,
    private readonly workerGraceMs: number,
    private readonly log: Logger,
  ) {}

  /** The current placement; waits workerGraceMs for a first worker, then rejects with NO_WORKERS. */
  placement(signal: AbortSignal): Promise<Placement> {
    const current = this.directory.placement;
    return current === null ? this.directory.waitForPlacement(this.workerGraceMs, signal) : Promise.resolve(current);
  }

  /** Rejects with NO_WORKERS, CANCELLED, or the error that every worker answered with. */
  async run(work: ExpertWork, workerId: string, signal: AbortSignal): Promise<ExpertOutcome> {
    const barred = new Set<string>();
    let target: string | null = workerId;
    let failure: OdmoeError | null = null;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      // With a placement at hand the work leaves in this very turn of the event loop.
      const placement = this.directory.placement ?? (await this.placement(signal));
      if (signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
      if (target === null || barred.has(target) || this.directory.worker(target) === null) {
        target = chooseReplacement(placement, work.layer, barred, this.directory.outstanding());
      }
      const link = target === null ? null : this.directory.worker(target);
      if (target === null || link === null) break;
      const resent = attempt > 0 || target !== workerId;
      try {
        const result = await link.execute(resent ? { ...work, last: true } : work, placement.epoch);
        return { result, resent };
      } catch (thrown) {
        failure = toOdmoeError(thrown);
        this.afterFailure(failure, work, target, placement.epoch, barred);
      }
    }
    throw failure ?? new OdmoeError('NO_WORKERS', 'no worker is left that could run an expert; see "odmoe status"');
  }

  /** A worker that is lost is out of the placement already; one that answers with an error is asked no more. */
  private afterFailure(
    failure: OdmoeError,
    work: ExpertWork,
    workerId: string,
    epoch: number,
    barred: Set<string>,
  ): void {
    const overtaken = failure.code === 'STALE_EPOCH' && this.directory.placement?.epoch !== epoch;
    if (failure.code !== 'WORKER_LOST' && !overtaken) barred.add(workerId);
    this.report(failure, work, workerId);
  }

  /** A failure that comes back at every token, as of a damaged pack, is a warning once. */
  private report(failure: OdmoeError, work: ExpertWork, workerId: string): void {
    const key = JSON.stringify([workerId, work.layer, work.expert, failure.code]);
    const level = this.reported.has(key) && failure.code !== 'WORKER_LOST' ? 'debug' : 'warn';
    this.reported.add(key);
    const [oldest] = this.reported;
    if (this.reported.size > MAX_REPORTED && oldest !== undefined) this.reported.delete(oldest);
    this.log[level]('expert is sent again', {
      worker: workerId,
      layer: work.layer,
      expert: work.expert,
      code: failure.code,
      message: failure.message,
    });
  }
}
