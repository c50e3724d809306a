import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import {
  clusterTimes,
  DEFAULT_SET_UP as SIMULATED_SET_UP,
  type ClusterSetUp,
  wholeTokenMs,
} from '../../simulator/simulate/cluster-set-up.js';
import { simulateCluster } from '../../simulator/simulate/simulate-cluster.js';
import { RecordedTrace, type TraceDocument } from '../../simulator/trace/trace-file.js';
import { recordTraceDocument } from '../trace/record-trace.js';
import { isCachedMachine, type CachedMachine, type SetUp, type ShadowQuantize } from './set-up.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';

export interface PaperTimes {
  decodeTokensPerS: number;
  /** Null: not simulated (the prompt of the fully cached machine). */
  ttftMs: number | null;
}

export interface PaperSimulationOptions {
  packPath: string;
  workers: number;
  precision: ShadowPrecision;
  quantize: ShadowQuantize;
}

/**
 * Simulates a run of the testbed with the same profile, set-up and prompts, and with the real activations, predictions and drafts of the
 * models. Traces are recorded in this process when they are first needed.
 */
export class SetUpSimulator {
  private readonly traces = new Map<string, TraceDocument>();

  constructor(private readonly options: PaperSimulationOptions) {}

  async simulate(
    setUp: SetUp | CachedMachine,
    profilePath: string,
    prompts: readonly (readonly number[])[],
    tokens: number,
  ): Promise<PaperTimes> {
    const profile = loadDeviceProfile(profilePath);
    if (isCachedMachine(setUp)) {
      const cachedMs = requirePresent(wholeTokenMs(profile, 'cached'), 'a testbed has a fully cached machine.');
      return { decodeTokensPerS: 1000 / cachedMs, ttftMs: null };
    }
    const document = await this.traceFor(setUp, prompts, tokens);
    const trace = new RecordedTrace(document, profile.model.shape.expertLayers);
    const times = clusterTimes(profile, setUp.expertStorage);
    return simulateCluster(times, clusterSetUp(setUp, setUp.workers ?? this.options.workers), trace, { tokens });
  }

  private async traceFor(
    { alignTokenPeriod, alignKeyValuePeriod, shadowPrecision }: SetUp,
    prompts: readonly (readonly number[])[],
    tokens: number,
  ): Promise<TraceDocument> {
    const precision = shadowPrecision ?? this.options.precision;
    const key = JSON.stringify([alignTokenPeriod, alignKeyValuePeriod, precision, prompts, tokens]);
    const known = this.traces.get(key);
    if (known !== undefined) return known;
    const document = await recordTraceDocument(
      {
        modelPath: this.options.packPath,
        prompts,
        iterations: tokens,
        precision,
        quantize: this.options.quantize,
        alignment: { token: alignTokenPeriod, keyValue: alignKeyValuePeriod },
        threads: 1,
        scores: false,
      },
      () => undefined,
    );
    this.traces.set(key, document);
    return document;
  }
}

/** The simulator's form of a set-up. */
export function clusterSetUp(setUp: SetUp, workers: number): ClusterSetUp {
  return {
    ...SIMULATED_SET_UP,
    workers,
    slots: setUp.slots,
    prefillOverlap: setUp.prefillOverlap,
    align: {
      tokenPeriod: setUp.alignTokenPeriod,
      keyValuePeriod: setUp.alignKeyValuePeriod,
      streamKeyValues: setUp.streamKeyValues,
    },
    drafting: { optimistic: setUp.optimistic, rows: setUp.draftRows, source: 'shadow', headExperts: 'auto' },
    prediction: { source: setUp.prediction, layersAhead: setUp.layersAhead },
    placement: { groupSize: 'auto', spread: setUp.spread, homes: 'group', replicas: 1 },
  };
}
