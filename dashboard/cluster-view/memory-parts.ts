import type { MemoryView } from '../../shared/wire/cluster-events.js';

export const MEMORY_KINDS = ['context', 'weights', 'keyValues', 'slots', 'cache', 'other'] as const;
export type MemoryKind = (typeof MEMORY_KINDS)[number];

export const MEMORY_TITLES: Record<MemoryKind, string> = {
  context: 'Context',
  weights: 'Weights',
  keyValues: 'Keys and values',
  slots: 'Slots',
  cache: 'Cache',
  other: 'Other',
};

export interface MemoryPart {
  kind: MemoryKind;
  bytes: number;
  /** Parts of the bar's length: 0 to 1. */
  begin: number;
  length: number;
}

export interface MemoryBar {
  parts: MemoryPart[];
  /** The bytes of the whole bar: the budget, or without one a little more than the high-water mark. */
  scaleBytes: number;
  /** Part of the bar's length: 0 to 1. */
  highWater: number;
}

/** Length of a bar without a budget, relative to its most bytes. It must not look full, because no limit is known. */
const ROOM_WITHOUT_BUDGET = 1.15;

function bytesOf(memory: MemoryView, kind: MemoryKind): number {
  switch (kind) {
    case 'context':
      return memory.contextBytes;
    case 'weights':
      return memory.weightBytes;
    case 'keyValues':
      return memory.keyValueBytes;
    case 'slots':
      return memory.slotBytes;
    case 'cache':
      return memory.cacheBytes;
    case 'other':
      return memory.otherBytes;
  }
}

/** The bar of a node's memory, from left to right; kinds without bytes are left out. */
export function memoryBar(memory: MemoryView): MemoryBar {
  const kinds = MEMORY_KINDS.map((kind) => ({ kind, bytes: bytesOf(memory, kind) })).filter(({ bytes }) => bytes > 0);
  const knownBytes = kinds.reduce((sum, { bytes }) => sum + bytes, 0);
  const most = Math.max(knownBytes, memory.usedBytes, memory.highWaterBytes);
  const scaleBytes = memory.budgetBytes > 0 ? Math.max(memory.budgetBytes, most) : most * ROOM_WITHOUT_BUDGET;
  if (scaleBytes === 0) return { parts: [], scaleBytes: 0, highWater: 0 };
  let begin = 0;
  const parts = kinds.map(({ kind, bytes }) => {
    const part = { kind, bytes, begin, length: bytes / scaleBytes };
    begin += part.length;
    return part;
  });
  return { parts, scaleBytes, highWater: memory.highWaterBytes / scaleBytes };
}
