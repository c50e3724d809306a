import { mostActiveSequences } from '../../shared/settings/setting-limits.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import type { DeviceBytes } from '../../engine/emulation/device-profile.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { ScenarioModel } from './scenario.js';
import { perPart } from '../../shared/model/expert-parts.js';
import { poolBytes } from '../../shared/decisions/caching/pool-capacities.js';

/**
 * Bytes of the objects on a device, for a tiny model. Real bytes are not counted, because threads allocate and free them in an order that
 * differs from run to run.
 */
export const DEVICE_BYTES: DeviceBytes = {
  outerBytes: 140_000,
  denseLayerBytes: 8000,
  expertBytes: 8000,
  slotBytes: 8000,
  slotSharedBytes: 4000,
  exponentEntryBytes: 2000,
  signMantissaEntryBytes: 4000,
  cacheRowBytes: 128,
  stateBytes: 0,
};

/** Numbers of layers, and of experts in all layers together; of a head that drafts, too. */
const SHAPES: Readonly<Record<ScenarioModel, { layers: number; experts: number; headExperts?: number }>> = {
  'four-experts': { layers: 2, experts: 8 },
  'six-experts': { layers: 3, experts: 18 },
  'one-of-three': { layers: 4, experts: 12 },
  'three-of-five': { layers: 2, experts: 10 },
  'delta-nets': { layers: 4, experts: 24 },
  'latent-attention': { layers: 3, experts: 16 },
  'mxfp4-experts': { layers: 2, experts: 8 },
  'short-convolutions': { layers: 4, experts: 15 },
  'dense-ends': { layers: 4, experts: 12 },
  'state-spaces': { layers: 5, experts: 21 },
  indexers: { layers: 4, experts: 18 },
  'draft-head': { layers: 4, experts: 12, headExperts: 6 },
  'chosen-blocks': { layers: 4, experts: 18 },
  pools: { layers: 4, experts: 24 },
  'chosen-pools': { layers: 4, experts: 18 },
};

/** Keys and values are allocated in blocks of this many positions. */
export const BLOCK_POSITIONS = 256;
/** Context of models whose sequences have several blocks, and of the other models. */
const LONG_CONTEXT_POSITIONS = 640;
const CONTEXT_POSITIONS = 160;
export const MODELS_OF_LONG_CONTEXTS = ['four-experts', 'delta-nets'] as const satisfies readonly ScenarioModel[];
const LONG_CONTEXTS: ReadonlySet<ScenarioModel> = new Set<ScenarioModel>(MODELS_OF_LONG_CONTEXTS);

type BudgetedSettings = Pick<NodeSettings, 'main' | 'worker'>;

/**
 * Device memory of a node in bytes; 0: no limit. A tight budget holds what the node needs to start and to answer one request at a time, a loose
 * one all that its settings may ever ask for. The experts of main's own worker beyond one slot give way when rows need memory. `mayNotFit`: the
 * budget may be too small for the node to start.
 */
export function drawBudget(
  random: SeededRandom,
  role: RoleSetting,
  model: ScenarioModel,
  settings: BudgetedSettings,
  { mayNotFit }: { mayNotFit: boolean },
): number {
  const kind = random.pick(['none', 'none', 'tight', 'loose'] as const);
  if (mayNotFit && random.chance(0.05)) return DEVICE_BYTES.slotSharedBytes + random.int(DEVICE_BYTES.slotBytes);
  if (kind === 'none') return 0;
  if (kind === 'loose') return 2 * mostBytes(role, model, settings);
  return leastBytes(role, model, settings) + random.int(2) * DEVICE_BYTES.slotBytes;
}

/** True if the node can start on its budget. */
export function holdsNode(model: ScenarioModel, settings: NodeSettings): boolean {
  const { memoryBudgetBytes } = settings.device;
  return memoryBudgetBytes === 0 || memoryBudgetBytes >= leastBytes(settings.role, model, settings);
}

/** True if main's budget holds all sequences that it may have at the same time. */
export function holdsAllSequences(model: ScenarioModel, settings: NodeSettings): boolean {
  return ['none', 'holdsAll'].includes(budgetKind(model, settings));
}

/** The share of the node's possible needs that its budget holds. */
export function budgetKind(
  model: ScenarioModel,
  settings: NodeSettings,
): 'none' | 'holdsAll' | 'holdsSome' | 'holdsNothing' {
  const { memoryBudgetBytes } = settings.device;
  if (memoryBudgetBytes === 0) return 'none';
  if (!holdsNode(model, settings)) return 'holdsNothing';
  return memoryBudgetBytes >= mostBytes(settings.role, model, settings) ? 'holdsAll' : 'holdsSome';
}

function leastBytes(role: RoleSetting, model: ScenarioModel, { main, worker }: BudgetedSettings): number {
  // Pools that the settings list come in addition to all slots.
  const slots = worker.pools === null ? 1 : drawnSlots(worker);
  if (role === 'worker') return slotsBytes(slots) + bytesOfPools(worker.pools);
  return modelBytes(role, model) + sequenceBytes(model) + (hasOwnWorker(role, main) ? slotsBytes(1) : 0);
}

function hasOwnWorker(role: RoleSetting, { experts }: BudgetedSettings['main']): boolean {
  return role === 'main' && experts !== 'workers';
}

function mostBytes(role: RoleSetting, model: ScenarioModel, { main, worker }: BudgetedSettings): number {
  if (role === 'worker') return slotsBytes(drawnSlots(worker)) + bytesOfPools(worker.pools);
  const ofSequences = mostActiveSequences(main.maxActiveSequences) * sequenceBytes(model);
  return modelBytes(role, model) + ofSequences + (hasOwnWorker(role, main) ? slotsBytes(drawnSlots(worker)) : 0);
}

function slotsBytes(slots: number): number {
  return DEVICE_BYTES.slotSharedBytes + slots * DEVICE_BYTES.slotBytes;
}

/** The workers of a scenario have a fixed number of slots. */
function drawnSlots({ slots }: NodeSettings['worker']): number {
  assertInvariant(slots !== 'auto', 'the slots of a scenario are a number.');
  return slots;
}

function modelBytes(role: RoleSetting, model: ScenarioModel): number {
  const { layers, experts, headExperts = 0 } = SHAPES[model];
  const resident = role === 'shadow' ? experts * DEVICE_BYTES.expertBytes : 0;
  const ofHead =
    role === 'main' && headExperts > 0 ? DEVICE_BYTES.outerBytes + headExperts * DEVICE_BYTES.expertBytes : 0;
  return DEVICE_BYTES.outerBytes + layers * DEVICE_BYTES.denseLayerBytes + resident + ofHead;
}

/** Most positions of prompt and answer together. */
export function contextPositions(model: ScenarioModel): number {
  return LONG_CONTEXTS.has(model) ? LONG_CONTEXT_POSITIONS : CONTEXT_POSITIONS;
}

/** Memory for rows: enough for any single request that the model can answer, or some blocks more. */
export function drawContextMemory(random: SeededRandom, model: ScenarioModel): number | 'auto' {
  const blocks = random.pick(['auto', 0, 0, 1, 2] as const);
  return blocks === 'auto' ? 'auto' : contextMemoryOf(model, blocks);
}

/** Memory for the rows of the longest sequence and this many more blocks. */
export function contextMemoryOf(model: ScenarioModel, moreBlocks: number): number {
  return sequenceBytes(model) + moreBlocks * blockBytes(model);
}

/** Bytes of the longest possible sequence. */
function sequenceBytes(model: ScenarioModel): number {
  return Math.ceil(contextPositions(model) / BLOCK_POSITIONS) * blockBytes(model);
}

function blockBytes(model: ScenarioModel): number {
  return SHAPES[model].layers * BLOCK_POSITIONS * DEVICE_BYTES.cacheRowBytes;
}

function bytesOfPools(pools: NodeSettings['worker']['pools']): number {
  if (pools === null) return 0;
  const entryBytes = perPart((part) => DEVICE_BYTES[`${part}EntryBytes`]);
  return poolBytes(pools, { full: DEVICE_BYTES.slotBytes, ...entryBytes });
}
