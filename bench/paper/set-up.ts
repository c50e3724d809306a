import type { DemoClusterOptions } from '../../cli/demo/demo-cluster.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { ExpertStorage, RoleSetting } from '../../shared/settings/setting-choices.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';

/** The settings of the testbed that differ between ablations. */
export interface SetUp {
  /** Name of a profile in bench/profiles; null: the profile of --profile. */
  profile: string | null;
  prediction: NodeSettings['prediction']['source'];
  /** Layers between the router that is asked and the layer at hand, for router-ahead. */
  layersAhead: number;
  /** Iterations; 0: never. */
  alignTokenPeriod: number;
  alignKeyValuePeriod: number;
  streamKeyValues: boolean;
  optimistic: boolean;
  draftRows: number | 'auto';
  spread: NodeSettings['placement']['spread'];
  /** True: in prefill, a layer's experts load while the layer before runs. */
  prefillOverlap: boolean;
  expertStorage: ExpertStorage;
  slots: number;
  /** Null: the number from --workers. */
  workers: number | null;
  /** Null: --precision, in the time and memory of the profile. Else the shadow's weights take the bytes of this precision. */
  shadowPrecision: ShadowPrecision | null;
}

/** One machine that holds the whole model and generates alone, with the profile's weights (FP32) or in BF16. */
export type CachedMachine = 'cached' | 'cached-bf16';

/** Profiles: the machine of --profile with weights of half the size; null: the profile of --profile itself. */
export const CACHED_PROFILES: Readonly<Record<CachedMachine, string | null>> = {
  cached: null,
  'cached-bf16': 'rtx3090-whole-bf16',
};

export function isCachedMachine(setUp: SetUp | CachedMachine): setUp is CachedMachine {
  return typeof setUp === 'string';
}

/**
 * OD-MoE as the paper ran it (sections 3 and 4.4): KV rows are sent at the end of an iteration, each worker holds one FP32 expert, and groups
 * have 2 workers. Its prefill loads, sends and computes one after the other. This follows from its TTFT: a layer of 16 tokens takes 42 ms,
 * which is one load and all transfers on one card in sequence.
 */
export const PAPER_SET_UP: SetUp = {
  profile: null,
  prediction: 'sep',
  layersAhead: 1,
  alignTokenPeriod: 1,
  alignKeyValuePeriod: 1,
  streamKeyValues: false,
  optimistic: false,
  draftRows: 1,
  spread: 'group',
  prefillOverlap: false,
  expertStorage: 'fp32',
  slots: 1,
  workers: null,
  shadowPrecision: null,
};

export function paperSetUp(changes: Partial<SetUp>): SetUp {
  return { ...PAPER_SET_UP, ...changes };
}

export type ShadowQuantize = NodeSettings['shadow']['quantize'];

/** The shadow's precision; none if the set-up's predictions need no shadow. */
export function shadowOf({ prediction }: SetUp, precision: ShadowPrecision): DemoClusterOptions['shadow'] {
  return prediction === 'sep' ? precision : 'none';
}

/** Flags of the daemons by role; `profilePath` null: without emulation. */
export function daemonFlags(
  setUp: SetUp,
  quantize: ShadowQuantize,
  profilePath: string | null,
): Record<RoleSetting, string[]> {
  const emulation = profilePath === null ? [] : ['--profile', profilePath, '--expert-storage', setUp.expertStorage];
  const main = ['--prediction', setUp.prediction, '--draft-rows', String(setUp.draftRows), '--spread', setUp.spread];
  if (setUp.prediction === 'sep') main.push('--draft-source', 'shadow');
  if (setUp.layersAhead > 1) main.push('--layers-ahead', String(setUp.layersAhead));
  // The same prompts are sent again with other answer lengths. The paper's system computes each of them anew.
  main.push('--no-reuse-prefixes');
  if (!setUp.streamKeyValues) main.push('--no-stream-kv');
  if (!setUp.prefillOverlap) main.push('--no-prefill-overlap');
  if (setUp.optimistic) main.push('--optimistic');
  return {
    main: [...emulation, ...main],
    shadow: [...emulation, '--quantize', quantize],
    worker: [...emulation, '--slots', String(setUp.slots)],
  };
}
