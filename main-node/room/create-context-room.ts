import type { YieldingMemory } from '../../engine/daemon/running-node.js';
import { type DraftHead, HEAD_PASS_ROWS } from '../../engine/generation/draft-head.js';
import type { Devices } from '../../engine/devices/devices.js';
import type { Device, DeviceInfo, Model } from '../../native/index.js';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { isRecurrent } from '../../shared/model/model-shape.js';
import { ROW_BLOCK_POSITIONS, sequenceMemoryBytes } from './sequence-memory.js';
import { decisionBytes, type DecisionRules } from '../../shared/decisions/slices/sequence-decisions.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { RowStore } from '../stored-rows/row-store.js';
import { ContextRoom, type ContextRoomOptions, TO_RAISE } from './context-room.js';
import { drafterBytes, type HeadMemory } from './drafter-memory.js';

/** Passes of one size, and how many of them there may be at a time. */
export interface PlannedPasses {
  readonly rows: number;
  readonly count: number;
}

export interface RoomComponents {
  readonly device: Device;
  readonly model: Model;
  readonly devices: Pick<Devices, 'cudaStatus'>;
  readonly runtime: Pick<Runtime, 'nowMs' | 'nextTurn' | 'freeHostMemoryBytes'>;
  /** The rules of the sequences' logical caches; null, or left out: they have none. */
  readonly decisions?: DecisionRules | null;
  /** Rows of earlier requests on disk; null, or left out: there are none. */
  readonly stored?: RowStore | null;
  /** The head that drafts for every answer; null, or left out: none does. */
  readonly head?: Pick<DraftHead, 'model' | 'drafters'> | null;
}

/** The memory of main's own worker on the same device; null: main has none. */
export type ExpertMemory = YieldingMemory | null;

/** Shares of free memory that rows may take where no budget is set: other processes use this memory, too. */
const SHARE_OF_FREE_HOST_MEMORY = 0.5;
const SHARE_OF_FREE_GPU_MEMORY = 0.9;

/** Creates the room of a main whose weights are loaded. Throws CONFIG_INVALID if no answer could ever have room. */
export function createContextRoom(
  { main }: { main: Pick<NodeSettings['main'], 'contextMemoryBytes' | 'reusePrefixes'> },
  components: RoomComponents,
  passes: readonly PlannedPasses[],
  experts: ExpertMemory = null,
): ContextRoom {
  const { device, model } = components;
  const { shape } = model;
  const room = new ContextRoom({
    model,
    device,
    experts,
    runtime: components.runtime,
    ...roomLimit(main.contextMemoryBytes, components, passes, experts?.yieldableBytes ?? 0),
    bytesOf: bytesOfPositions(components, passes),
    decisionBytesOf: bytesOfDecisions(components),
    head: headMemory(components),
    maxPositions: shape.maxPositions,
    isRecurrent: shape.layers.some(({ mixer }) => isRecurrent(mixer)),
    reusesPrefixes: main.reusePrefixes,
    stored: components.stored ?? null,
  });
  requireRoomForARowBlock(room);
  return room;
}

/** Bytes of passes and of the shortest answer: main's own worker leaves this much free when it makes its slots. */
export function leastAnswerBytes(components: RoomComponents, passes: readonly PlannedPasses[]): number {
  const { maxPositions } = components.model.shape;
  const positions = Math.min(LEAST_ROW_BLOCKS * ROW_BLOCK_POSITIONS, maxPositions);
  const answerBytes = bytesOfPositions(components, passes)(positions);
  const head = headMemory(components);
  const ofDrafter = head === null ? 0 : drafterBytes(head, positions);
  return bytesOfPasses(components, passes) + answerBytes + (bytesOfDecisions(components)?.(positions) ?? 0) + ofDrafter;
}

/** A drafter has a pass for rows that it is fed, and one for its drafts. */
const DRAFTER_PASSES: readonly PlannedPasses[] = [
  { rows: HEAD_PASS_ROWS, count: 1 },
  { rows: 1, count: 1 },
];

/** The memory of drafters, of which each answer has one; null: no head drafts. */
function headMemory(components: RoomComponents): HeadMemory | null {
  const { head = null } = components;
  if (head === null) return null;
  const { model } = head;
  const ofHead = { ...components, model };
  const passBytes = bytesOfPasses(ofHead, DRAFTER_PASSES);
  return {
    get heldBytes() {
      return model.sequenceBytes + head.drafters * passBytes;
    },
    passBytes,
    rowBytesOf: bytesOfPositions(ofHead, DRAFTER_PASSES),
  };
}

/** One row block that is in use, and one to go on with. */
const LEAST_ROW_BLOCKS = 2;

function bytesOfPositions(
  { device, model }: RoomComponents,
  passes: readonly PlannedPasses[],
): (positions: number) => number {
  if (device.info().backend === 'emulated') return emulatedBytes(model);
  const passRows = Math.max(...passes.map(({ rows }) => rows));
  return (positions) => sequenceMemoryBytes(model.shape, positions, passRows);
}

/** Null: none are counted. An emulated device has the bytes of a profile's model, beside which those of this model's decisions mean nothing. */
function bytesOfDecisions({ device, decisions = null }: RoomComponents): ((rows: number) => number) | null {
  if (decisions === null || device.info().backend === 'emulated') return null;
  return (rows) => decisionBytes(decisions, rows);
}

/** Rows come in row blocks: if not even one of them has room, every request would be refused. */
function requireRoomForARowBlock(room: ContextRoom): void {
  if (room.mostPositions > 0) return;
  const { limitBytes, leastBytes, limitSetBy } = room;
  throw new OdmoeError(
    'CONFIG_INVALID',
    `main has ${formatByteSize(limitBytes)} for the rows of answers, and the shortest one takes ${formatByteSize(leastBytes)}: ${TO_RAISE[limitSetBy]}`,
  );
}

/**
 * The limit is the part of the budget that weights, passes and non-yielding experts leave; without a budget it is a share of free memory. A size that
 * the operator has set is a second bound beside the budget, and does not promise that the budget has so much.
 */
function roomLimit(
  setting: number | 'auto',
  components: RoomComponents,
  passes: readonly PlannedPasses[],
  yieldableBytes: number,
): Pick<ContextRoomOptions, 'limitBytes' | 'limitSetBy'> {
  const { device, devices, runtime } = components;
  const { budgetBytes } = device.info();
  if (setting !== 'auto' && budgetBytes === 0) return { limitBytes: setting, limitSetBy: 'context_memory' };
  const passBytes = bytesOfPasses(components, passes);
  const info = device.info();
  const left = (bytes: number): number => Math.max(0, Math.floor(bytes));
  if (budgetBytes > 0) {
    const limitBytes = left(budgetBytes - info.usedBytes - passBytes + yieldableBytes);
    if (setting !== 'auto' && setting < limitBytes) return { limitBytes: setting, limitSetBy: 'context_memory' };
    return { limitBytes, limitSetBy: 'memory_budget' };
  }
  const limitBytes =
    info.backend === 'cuda'
      ? left((gpuBytes(info, devices) - info.usedBytes - passBytes) * SHARE_OF_FREE_GPU_MEMORY)
      : left(runtime.freeHostMemoryBytes() * SHARE_OF_FREE_HOST_MEMORY);
  return { limitBytes, limitSetBy: 'free_memory' };
}

function gpuBytes({ name }: DeviceInfo, devices: Pick<Devices, 'cudaStatus'>): number {
  return devices.cudaStatus().devices.find((device) => device.name === name)?.memoryBytes ?? 0;
}

/** Passes are created when they are first needed; one is created here to measure its bytes. */
function bytesOfPasses({ device, model }: RoomComponents, passes: readonly PlannedPasses[]): number {
  return passes.reduce((sum, { rows, count }) => {
    const before = device.info().usedBytes;
    const pass = model.createPass(rows);
    const bytes = device.info().usedBytes - before;
    pass.dispose();
    return sum + bytes * count;
  }, 0);
}

/** An emulated device counts bytes in its own way, row block by row block. */
function emulatedBytes(model: Model): (positions: number) => number {
  const byRowBlocks: number[] = [0];
  return (positions) => {
    const rowBlocks = Math.ceil(Math.min(positions, model.shape.maxPositions) / ROW_BLOCK_POSITIONS);
    const known = byRowBlocks[rowBlocks];
    if (known !== undefined) return known;
    const sequence = model.createSequence();
    const bytes = sequence.bytesToWrite(0, rowBlocks * ROW_BLOCK_POSITIONS);
    sequence.dispose();
    return (byRowBlocks[rowBlocks] = bytes);
  };
}
