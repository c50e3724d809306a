import { bundleBatches, type ExpertBatch } from './expert-batches.js';
import type { ExpertOutcome } from './expert-dispatcher.js';
import { takeOutput, type LayerStep, type WorkerShare } from './layer-step.js';
import type { LayerRace } from './layer-waits.js';
import { membersOf, noteProvenance, type PassContext } from './pass-context.js';
import { settleAll, type PassEngine } from './pass-engine.js';

/** Mini-batches that a worker has at a time: it computes on one while the next is on the wire. */
export const BATCHES_IN_FLIGHT_PER_WORKER = 2;

/** Has the workers run a layer's experts, takes their results, and counts the costs. */
export class SendQueues {
  /** Null for passes with rows of prompts: main waits for those in another way, and does not note for which worker. */
  private readonly race: LayerRace | null;
  private stallUs = 0;

  constructor(
    private readonly engine: PassEngine,
    private readonly context: PassContext,
    private readonly step: LayerStep,
    private readonly plan: { foreseen: ReadonlySet<number>; batchRows: number },
  ) {
    const { layerWaits, runtime } = engine;
    const isAnswers = context.owners.every(({ isAnswer }) => isAnswer);
    this.race = isAnswers ? layerWaits.begin(step.layer, runtime.nowMs()) : null;
  }

  /** Sends the batches: those of one worker in order, those of different workers side by side. The first leave before this returns its promise. */
  async run(batches: readonly ExpertBatch[]): Promise<void> {
    const lanes = [...bundleBatches(batches, this.plan.batchRows).values()];
    this.stallUs = 0;
    await settleAll(
      lanes.flatMap((shares) => {
        const queue = shares.values();
        const inFlight = Math.min(BATCHES_IN_FLIGHT_PER_WORKER, shares.length);
        return Array.from({ length: inFlight }, () => this.runShares(queue));
      }),
    );
    this.context.stallUs += this.stallUs;
  }

  /** All results are there. */
  end(): void {
    if (this.race !== null) this.engine.layerWaits.end(this.race);
  }

  /** Runs shares of one worker one after another, from a queue that several of these share. */
  private async runShares(queue: Iterator<WorkerShare>): Promise<void> {
    const { dispatcher } = this.engine;
    const { observed, signal } = this.context;
    for (let next = queue.next(); next.done !== true; next = queue.next()) {
      const { workerId, tasks } = next.value;
      observed?.sent(
        this.step.layer,
        workerId,
        tasks.map(({ expert }) => expert),
      );
      await dispatcher.run(this.step, next.value, signal, this.take);
    }
  }

  private readonly take = (outcome: ExpertOutcome): void => {
    const { race, engine, context, step } = this;
    const { task, workerId, result, resent } = outcome;
    this.stallUs = Math.max(this.stallUs, result.stallUs);
    if (race !== null) {
      race.take(workerId, result, engine.runtime.nowMs());
      race.disturbed ||= resent;
    }
    const wasReloaded = !this.plan.foreseen.has(task.expert) && !result.wasLoaded;
    if (resent || wasReloaded)
      for (const { counters } of membersOf(context.owners, task.rows, ({ isAnswer }) => resent || isAnswer))
        counters.reloads += 1;
    takeOutput(step, task, result.output, engine.shape);
    noteProvenance(context.owners, task.rows, workerId);
    context.observed?.received(step.layer, outcome);
  };
}
