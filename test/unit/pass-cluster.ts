import assert from 'node:assert/strict';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { Pass, RouterChoice, Sequence } from '../../native/index.js';
import { NO_TIMES } from '../../shared/wire/messages.js';
import type { ExecuteWork, PlacedWorkers, WorkerOrders } from '../../main-node/cluster/placed-workers.js';
import { SequencePredictions } from '../../main-node/decode/sequence-predictions.js';
import { ExpertDispatcher } from '../../main-node/pass/expert-dispatcher.js';
import { LayerWaits } from '../../main-node/pass/layer-waits.js';
import type { PassEngine } from '../../main-node/pass/run-layer.js';
import { RequestCounters, type MemberRows, type PassMember, RowProvenance } from '../../main-node/pass/pass-member.js';
import { ResidualStates, type ReusablePass } from '../../main-node/pass/reusable-passes.js';
import { JointDealer, AnnouncedPasses } from '../../main-node/pass/announcements.js';
import { PassRunner } from '../../main-node/pass/run-pass.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { rowCount } from '../../shared/wire/pass-rows.js';
import type { Placement } from '../../shared/wire/messages.js';
import { plainShape } from './plain-shape.js';
import { RecordingWorkers } from './recording-workers.js';
import { silentLog } from './worker-test-slots.js';

/** Chooses the experts of a token in a layer: expertsPerToken distinct experts. */
export type Router = (tokenId: number, layer: number) => readonly number[];

/** Workers that run every expert at once when they are asked. They report an expert as loaded if it was announced for the pass and layer. */
export class RunningWorkers extends RecordingWorkers implements PlacedWorkers {
  readonly works: [id: string, work: ExecuteWork][] = [];
  /** "worker position/layer expert" of each expert that a worker was asked for without an announcement. */
  readonly unannounced: string[] = [];

  override worker(id: string): WorkerOrders {
    return {
      ...super.worker(id),
      execute: async (work, _epoch, onPart) => {
        this.works.push([id, work]);
        const known = this.predictions.flatMap(([to, { pass, layer, experts }]) =>
          to === id && pass.position === work.pass.position && layer === work.layer ? experts : [],
        );
        onPart(
          work.experts.map(({ expert, rows: indexes }) => {
            const wasLoaded = known.includes(expert);
            if (!wasLoaded) this.unannounced.push(`${id} ${work.pass.position}/${work.layer} ${expert}`);
            const rows = indexes.length === 0 ? rowCount(work.rows) : indexes.length;
            const times = { wasLoaded, stallUs: wasLoaded ? 0 : 1000, executeUs: 0, ...NO_TIMES };
            return { expert, rows, ...times, output: new Uint8Array(4 * rows), failure: null };
          }),
        );
      },
    };
  }

  distrust(): void {
    assert.fail('no worker of these lies');
  }

  outstanding(): Map<string, number> {
    return new Map();
  }

  waitForPlacement(): Promise<never> {
    return Promise.reject(new Error('there is a placement'));
  }

  waitForChange(): Promise<void> {
    return Promise.reject(new Error('no worker has failed'));
  }

  /** "worker position/layer expert" of each request for an expert. */
  get asked(): string[] {
    return this.works.flatMap(([id, { pass, layer, experts }]) =>
      experts.map(({ expert }) => `${id} ${pass.position}/${layer} ${expert}`),
    );
  }

  /** The same of each announced expert, and of each released one. */
  get announcedExperts(): string[] {
    return this.expertsAnnounced(false);
  }

  /** Announced experts that main doubted later. */
  get doubtedExperts(): string[] {
    return this.expertsAnnounced(true);
  }

  private expertsAnnounced(isDoubted: boolean): string[] {
    return this.predictions.flatMap(([id, { pass, layer, experts, doubted = false }]) =>
      doubted === isDoubted ? experts.map((expert) => `${id} ${pass.position}/${layer} ${expert}`) : [],
    );
  }

  get releasedExperts(): string[] {
    return this.releases.flatMap(([id, { pass, layer, experts }]) =>
      experts.map((expert) => `${id} ${pass.position}/${layer} ${expert}`),
    );
  }
}

export interface PassClusterOptions {
  workers?: number;
  experts?: number;
  layers?: number;
  router?: Router;
  engine?: Partial<PassEngine>;
  /** The residual stream of rows with these tokens, rows x hiddenSize; all zero if left out. */
  residual?: (tokenIds: Int32Array) => Float32Array;
  /** Is called while the pass attends at a layer. */
  onAttend?: (layer: number) => void;
  /** Attention takes until its promise resolves. */
  attending?: (layer: number) => Promise<void>;
}

const VOCABULARY = 4;
const ALL_ROWS = 64;

/** A main that runs passes, over workers that answer at once. The logits of a row begin with its token. */
export class PassCluster {
  readonly workers: RunningWorkers;
  readonly passes = new AnnouncedPasses();
  readonly runner: PassRunner;
  readonly placement: Placement;
  private readonly slot: ReusablePass;
  private tokens = new Int32Array();

  constructor(private readonly options: PassClusterOptions = {}) {
    const { workers = 4, experts = 4, layers = 2, engine = {} } = options;
    const shape = plainShape({ expertLayers: layers, experts, vocabSize: VOCABULARY });
    this.placement = planPlacement({
      epoch: 1,
      workers: Array.from({ length: workers }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 })),
      layers,
      experts,
      expertsPerToken: shape.expertsPerToken,
      groupSize: 'auto',
    });
    this.workers = new RunningWorkers(this.placement);
    this.slot = {
      pass: this.createPass(),
      hidden: new Uint8Array(4 * ALL_ROWS),
      outputs: new Uint8Array(4 * ALL_ROWS * shape.expertsPerToken),
      states: new ResidualStates(shape.hiddenSize),
    };
    this.runner = new PassRunner({
      shape,
      roster: this.workers,
      dispatcher: new ExpertDispatcher(this.workers, 10, silentLog),
      jointDealer: new JointDealer(() => false),
      announcedPasses: this.passes,
      miniBatchRows: ALL_ROWS,
      prefillOverlap: true,
      spread: 'group',
      checks: null,
      uses: null,
      observer: null,
      prediction: { source: 'sep', layersAhead: 1 },
      trained: null,
      tokenExperts: null,
      recorder: null,
      precision: null,
      decisions: null,
      firstLayerAhead: false,
      draftCosts: { passed: () => undefined },
      layerWaits: new LayerWaits(layers),
      runtime: { nowMs: () => 0 },
      ...engine,
    });
  }

  run(rows: readonly MemberRows[], following?: () => readonly MemberRows[] | null): Promise<Float32Array[][]> {
    return this.runner.run(this.slot, rows, following);
  }

  get pass(): Pass {
    return this.slot.pass;
  }

  /** A pass whose router is that of the options; by default it chooses experts 0 and 1 for every row. */
  private createPass(): Pass {
    const router = this.options.router ?? (() => [0, 1]);
    const choose = async (layer: number): Promise<RouterChoice> => {
      const experts = Int32Array.from([...this.tokens].flatMap((token) => [...router(token, layer)]));
      return { experts, weights: new Float32Array(experts.length) };
    };
    const pass: Partial<Pass> = {
      begin: async (_sequences, _owners, _positions, tokenIds) => void (this.tokens = Int32Array.from(tokenIds)),
      attend: async (layer) => {
        this.options.onAttend?.(layer);
        await this.options.attending?.(layer);
        return choose(layer);
      },
      chooseAhead: choose,
      residual: async (states) => states.set(this.options.residual?.(this.tokens) ?? new Float32Array(states.length)),
      combine: async () => undefined,
      logits: async (rows) =>
        Float32Array.from(
          [...rows].flatMap((row) => [this.tokens[row] ?? -1, ...Array<number>(VOCABULARY - 1).fill(0)]),
        ),
      states: async (rows) => Float32Array.from(rows),
      dispose: () => undefined,
    };
    return pass as Pass;
  }
}

export interface TestMember extends PassMember {
  readonly predictions: SequencePredictions;
  readonly written: string[];
}

export function memberOf(
  id: number,
  options: { promptTokens?: number; fed?: boolean; signal?: AbortSignal; layers?: number; lastPosition?: number } = {},
): TestMember {
  const { promptTokens = 1, fed = true, signal = new AbortController().signal, layers = 2 } = options;
  const written: string[] = [];
  return {
    id,
    sequence: {} as Sequence,
    counters: new RequestCounters(),
    signal,
    written,
    provenance: new RowProvenance(),
    lastPosition: options.lastPosition ?? 1000,
    predictions: new SequencePredictions(promptTokens, layers, new VirtualRuntime(new VirtualClock(), 1)),
    feed: {
      fed,
      layerWritten: (layer, end) => void written.push(`${layer} to ${end}`),
      allWritten: (end) => void written.push(`all to ${end}`),
      passEnded: () => void written.push('ended'),
    },
  };
}

/** Rows of a sequence's answer. */
export function answerRows(member: PassMember, position: number, tokenIds: readonly number[]): MemberRows {
  return { member, position, tokenIds, decodeFrom: 0, logitsFrom: 0 };
}

/** Rows of a prompt, without logits. */
export function promptRows(member: PassMember, position: number, tokens: number): MemberRows {
  const tokenIds = Array.from({ length: tokens }, (_, index) => position + index);
  return { member, position, tokenIds, decodeFrom: tokens, logitsFrom: tokens };
}
