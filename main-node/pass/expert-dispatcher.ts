import type { ExpertId } from '../../shared/model/expert-id.js';
import { allFinite } from '../../native/index.js';
import { isErrorCode, OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ExpertResult, Placement } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import type { ExecuteWork, PlacedWorkers, WorkerOrders } from '../cluster/placed-workers.js';
import { messageOf, type ExpertWork, type LayerStep } from './expert-work.js';
import { judge, lieOf, modelGivesNoNumbers, undecided, type Opinion } from './second-opinion.js';
import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { strictHomesOf, isStrict } from '../../shared/decisions/placement/strict-homes.js';

/** The result of work. */
export interface ExpertOutcome {
  work: ExpertWork;
  workerId: string;
  result: ExpertResult;
  /** The work had to be sent more than once, or to another worker than the one that was asked first. */
  resent: boolean;
}

/** Most attempts of work. When it has failed on so many connections, or waited so often for another worker, the work itself is the likely cause. */
export const MAX_ATTEMPTS = 32;

/** Most failures that are remembered as logged. */
const MAX_REPORTED = 4096;

/** Work that is not done. */
interface OpenWork {
  work: ExpertWork;
  attempts: number;
  /** Connections to workers that cannot do it. */
  barred: Set<WorkerOrders>;
  failure: OdmoeError | null;
}

/** The output of a worker, which is compared with the outputs of other workers. */
interface WorkerOpinion extends Opinion {
  readonly link: WorkerOrders;
  readonly result: ExpertResult;
}

/** A layer whose work is sent; `take` is called once with each outcome, as it comes. */
export interface LayerRun {
  step: LayerStep;
  signal: AbortSignal;
  take: (outcome: ExpertOutcome) => void;
}

/**
 * Sends a worker its work of a layer. When that worker is lost or cannot do some of it, the work that is not done goes to other workers, under the
 * current epoch, until all is done. The bits of a result do not depend on the worker. Values that are not finite are not taken: other workers
 * run the same expert until it is known which worker is at fault.
 */
export class ExpertDispatcher {
  /** Failures that are logged, by worker, expert and code. A full map forgets the failure that came least recently. */
  private readonly reported = new RecentMap<string, true>(MAX_REPORTED);

  constructor(
    private readonly workers: PlacedWorkers,
    private readonly workerGraceMs: number,
    private readonly log: Logger,
  ) {}

  /** The current placement; waits workerGraceMs for a first worker, then rejects with NO_WORKERS. */
  placement(signal: AbortSignal): Promise<Placement> {
    const current = this.workers.placement;
    return current === null ? this.workers.waitForPlacement(this.workerGraceMs, signal) : Promise.resolve(current);
  }

  /**
   * Has the worker do the work, in one message. If there is a placement, the message leaves in this same turn of the event loop. Rejects with
   * NO_WORKERS, CANCELLED, or the error that the workers replied with, but only when nothing of the work runs any more.
   */
  run(run: LayerRun, workerId: string, asked: readonly ExpertWork[]): Promise<void> {
    const open = asked.map((work): OpenWork => ({ work, attempts: 0, barred: new Set(), failure: null }));
    return this.workers.worker(workerId) === null ? this.sendOn(run, open) : this.send(run, workerId, open);
  }

  /** Sends the work to the worker. Work that it does not do goes to other workers. */
  private async send(run: LayerRun, workerId: string, open: readonly OpenWork[], resent = false): Promise<void> {
    const { placement } = this.workers;
    const link = this.workers.worker(workerId);
    if (run.signal.aborted) throw cancelled();
    if (link === null || placement === null) return this.sendOn(run, open);
    const unanswered = new Map(open.map((each) => [each.work.expert, each]));
    const elsewhere: Promise<OdmoeError | null>[] = [];
    const fail = (failed: readonly OpenWork[], failure: (each: OpenWork) => OdmoeError): void => {
      if (failed.length === 0) return;
      for (const each of failed) this.afterFailure(each, failure(each), { workerId, link, placement });
      elsewhere.push(settled(this.sendOn(run, failed)));
    };
    const onPartialResult = (results: readonly ExpertResult[]): void => {
      const failures = new Map<OpenWork, OdmoeError>();
      for (const result of results) {
        const answered = requirePresent(
          unanswered.get(result.expert),
          'a worker answers for experts that it was asked.',
        );
        unanswered.delete(result.expert);
        const { failure, output } = result;
        if (failure === null && allFinite(output)) run.take({ work: answered.work, workerId, result, resent });
        else if (failure === null)
          elsewhere.push(settled(this.compare(run, answered, { workerId, link, output, result })));
        else failures.set(answered, failureOf(workerId, failure));
      }
      fail([...failures.keys()], (each) => requirePresent(failures.get(each), 'work that failed has an error.'));
    };
    const asked = open.map(({ work }) => (resent ? { ...work, last: true } : work));
    try {
      await link.execute(messageOf(run.step, asked), placement.epoch, onPartialResult, run.signal);
    } catch (thrown) {
      const failure = toOdmoeError(thrown);
      if (run.signal.aborted) elsewhere.push(Promise.resolve(cancelled()));
      else fail([...unanswered.values()], () => failure);
    }
    for (const failure of await Promise.all(elsewhere)) if (failure !== null) throw failure;
  }

  /** Has other workers do the work until it is known which worker gave values that are not finite. Rejects if the first worker is not at fault. */
  private async compare(run: LayerRun, open: OpenWork, first: WorkerOpinion): Promise<void> {
    const opinions = [first];
    for (;;) {
      const verdict = judge(opinions);
      if (verdict === 'agreed') {
        throw modelGivesNoNumbers(
          open.work,
          opinions.map(({ workerId }) => workerId),
        );
      }
      if (verdict === 'believed') return this.believe(run, open, opinions);
      const next = await this.askAnother(run, open, opinions);
      if (next === null) throw undecided(open.work, opinions);
      opinions.push(next);
    }
  }

  /** The last worker has given finite values: its result is taken, and the other workers are distrusted. */
  private believe(run: LayerRun, { work }: OpenWork, opinions: readonly WorkerOpinion[]): void {
    const believed = requirePresent(opinions.at(-1), 'somebody is believed.');
    const why = lieOf(work, believed.workerId);
    for (const { link } of opinions.slice(0, -1)) this.workers.distrust(link, why);
    run.take({ work, workerId: believed.workerId, result: believed.result, resent: true });
  }

  /** The output of a worker that has not done this work yet; null: there is no such worker that could run it. */
  private async askAnother(
    run: LayerRun,
    open: OpenWork,
    opinions: readonly WorkerOpinion[],
  ): Promise<WorkerOpinion | null> {
    for (;;) {
      if (run.signal.aborted) throw cancelled();
      const { placement } = this.workers;
      if (placement === null || open.attempts >= MAX_ATTEMPTS) return null;
      const asked = new Set([...this.barredIds(placement, open), ...opinions.map(({ workerId }) => workerId)]);
      const workerId = chooseReplacement(placement, open.work, asked, this.workers.outstanding());
      const link = workerId === null ? null : this.workers.worker(workerId);
      if (workerId === null || link === null) return null;
      const message = messageOf(run.step, [{ ...open.work, last: true }]);
      try {
        const result = await answerOf(link, message, placement.epoch, run.signal);
        if (result.failure === null) return { workerId, link, output: result.output, result };
        this.afterFailure(open, failureOf(workerId, result.failure), { workerId, link, placement });
      } catch (thrown) {
        if (run.signal.aborted) throw cancelled();
        this.afterFailure(open, toOdmoeError(thrown), { workerId, link, placement });
      }
    }
  }

  /** Sends each part of this work to a worker that can do it. Waits for such a worker if there is none. */
  private async sendOn(run: LayerRun, open: readonly OpenWork[]): Promise<void> {
    const sent: Promise<OdmoeError | null>[] = [];
    const fault = await settled(this.sendAll(run, open, sent));
    for (const failure of [fault, ...(await Promise.all(sent))]) if (failure !== null) throw failure;
  }

  private async sendAll(run: LayerRun, open: readonly OpenWork[], sent: Promise<OdmoeError | null>[]): Promise<void> {
    let left = open;
    while (left.length > 0) {
      if (run.signal.aborted) throw cancelled();
      const { placement } = this.workers;
      const { byWorker, stuck } = this.reassign(placement, left);
      for (const [workerId, work] of byWorker) sent.push(settled(this.send(run, workerId, work, true)));
      if (stuck.length > 0) await this.awaitWorkers(placement, stuck, run.signal);
      left = stuck;
    }
  }

  /** Chooses the worker that takes over each unit of work. `stuck`: work at which all workers that are left have failed. */
  private reassign(
    placement: Placement | null,
    open: readonly OpenWork[],
  ): { byWorker: Map<string, OpenWork[]>; stuck: OpenWork[] } {
    const byWorker = new Map<string, OpenWork[]>();
    const stuck: OpenWork[] = [];
    const outstanding = new Map(this.workers.outstanding());
    for (const each of open) {
      if (each.attempts >= MAX_ATTEMPTS) throw failureWithoutWorkers(each);
      const target =
        placement === null
          ? null
          : chooseReplacement(placement, each.work, this.barredIds(placement, each), outstanding);
      if (target === null) {
        stuck.push(each);
        continue;
      }
      outstanding.set(target, (outstanding.get(target) ?? 0) + 1);
      byWorker.set(target, [...(byWorker.get(target) ?? []), each]);
    }
    return { byWorker, stuck };
  }

  /** Ids of the workers that cannot do the work. A worker that has reconnected since it failed is not barred. */
  private barredIds(placement: Placement, { barred }: OpenWork): ReadonlySet<string> {
    const isBarred = ({ id }: { id: string }): boolean => {
      const link = this.workers.worker(id);
      return link === null || barred.has(link);
    };
    return new Set(placement.workers.filter(isBarred).map(({ id }) => id));
  }

  /** Rejects when no worker has come within the grace period. */
  private async awaitWorkers(placement: Placement | null, stuck: OpenWork[], signal: AbortSignal): Promise<void> {
    for (const each of stuck) each.attempts += 1;
    if (placement === null) {
      await this.workers.waitForPlacement(this.workerGraceMs, signal);
      return;
    }
    await this.workers.waitForChange(this.workerGraceMs, signal);
    const [first] = stuck;
    if (this.workers.placement?.epoch === placement.epoch && first !== undefined) throw failureWithoutWorkers(first);
  }

  /** Notes a failed attempt. A lost worker is out of the placement already; a worker that replied with an error is not asked for this work again. */
  private afterFailure(
    open: OpenWork,
    failure: OdmoeError,
    { workerId, link, placement }: { workerId: string; link: WorkerOrders; placement: Placement },
  ): void {
    const overtaken = failure.code === 'STALE_EPOCH' && this.workers.placement?.epoch !== placement.epoch;
    if (failure.code !== 'WORKER_LOST' && !overtaken) open.barred.add(link);
    open.failure = failure;
    open.attempts += 1;
    this.report(failure, open.work, workerId);
  }

  /** Logs a failure. If the same failure comes back at every token, as with a damaged pack, only the first one is a warning. */
  private report({ code, message }: OdmoeError, { layer, expert }: ExpertId, worker: string): void {
    const key = JSON.stringify([worker, layer, expert, code]);
    const level = this.reported.has(key) && code !== 'WORKER_LOST' ? 'debug' : 'warn';
    this.reported.set(key, true);
    this.log[level]('expert is sent again', { worker, layer, expert, code, message });
  }
}

/** The result of a message that has one expert. */
export async function answerOf(
  link: WorkerOrders,
  message: ExecuteWork,
  epoch: number,
  signal: AbortSignal,
): Promise<ExpertResult> {
  const answers: ExpertResult[] = [];
  await link.execute(message, epoch, (results) => answers.push(...results), signal);
  return requirePresent(answers[0], 'a worker that has done its work has given a result.');
}

function cancelled(): OdmoeError {
  return new OdmoeError('CANCELLED', 'the request was cancelled');
}

function failureOf(workerId: string, { code, message }: NonNullable<ExpertResult['failure']>): OdmoeError {
  return new OdmoeError(isErrorCode(code) ? code : 'INTERNAL', `worker ${workerId}: ${message}`);
}

function failureWithoutWorkers({ failure }: OpenWork): OdmoeError {
  if (failure === null) {
    return new OdmoeError('NO_WORKERS', 'no worker is left that could run an expert; see "odmoe status"');
  }
  const { code, message } = failure;
  const advice = 'no other worker could take its work over in time: start it again, or another one, and ask again';
  return new OdmoeError(code, `${message}; ${advice} ("odmoe status" shows who is there)`, { cause: failure });
}

/** Resolves to null when the work has been done, else to its error. The caller throws that error when all other work has ended, too. */
function settled(work: Promise<void>): Promise<OdmoeError | null> {
  return work.then(() => null, toOdmoeError);
}

/**
 * Chooses the worker that takes over an expert of a layer from a lost worker. Candidates are the expert's strict homes, or else the layer's group, if
 * any of them is left; otherwise all workers. The one with the fewest outstanding requests is chosen (by worker id; absent means none), ties to the
 * lower id. Null when all workers are lost.
 */
export function chooseReplacement(
  placement: Placement,
  { layer, expert }: ExpertId,
  lost: ReadonlySet<string>,
  outstanding: ReadonlyMap<string, number>,
): string | null {
  const isLeft = (id: string): boolean => !lost.has(id);
  const own = isStrict(placement) ? strictHomesOf(placement, layer, expert) : groupForLayer(placement, layer);
  const near = own.filter(isLeft);
  const candidates = near.length > 0 ? near : placement.workers.map((worker) => worker.id).filter(isLeft);
  return candidates.reduce<string | null>(
    (best, id) => (best === null || (outstanding.get(id) ?? 0) < (outstanding.get(best) ?? 0) ? id : best),
    null,
  );
}
