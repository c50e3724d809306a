import type { OperatorTime } from '../../shared/emulation/index.js';

/** How long the operations of a paced device take. */
export interface DeviceTimes {
  /** Attention, norms and router of one layer: Pass.attend, and each layer of Pass.forward. */
  denseLayer: OperatorTime;
  /** One expert: ExpertSlots.execute, and each activated expert of each layer of Pass.forward, one after the other. */
  expert: OperatorTime;
  /** Pass.logits. */
  lmHead: OperatorTime;
  /** One expert over the link from storage into a slot. The loads of a device share its link. */
  loadMs: number;
  /** Of loadMs, what reading the exponents takes; the rest reads signs and mantissas. A part that is in an entry is not read. */
  exponentShare: number;
  /** Recovering plain values: a load takes no less, however little it reads. */
  recoverMs: number;
}

/** What is held on a paced device, in bytes of the model that it stands for. */
export interface DeviceBytes {
  /** Embedding, LM head and final norm. */
  outerBytes: number;
  /** All dense weights of one layer. */
  denseLayerBytes: number;
  /** A resident expert. */
  expertBytes: number;
  /** A slot for one expert, and what slots share. */
  slotBytes: number;
  slotSharedBytes: number;
  /** An entry that keeps a part of an expert. */
  exponentEntryBytes: number;
  signMantissaEntryBytes: number;
  /** Keys and values of one position in one layer. */
  keyValueRowBytes: number;
}

/** Time and memory of a device that another one stands for. */
export interface DevicePace {
  times: DeviceTimes;
  /** Null: memory counts as on the device that does the arithmetic, against that device's budget. */
  memory: {
    bytes: DeviceBytes;
    /** 0: no limit. */
    budgetBytes: number;
  } | null;
}

const NOTHING: OperatorTime = { overheadMs: 0, weightsMs: 0, rowMs: 0 };

/** Nothing takes any time: what happens on a virtual clock does not depend on how fast the arithmetic is. */
export const TIMELESS: DevicePace = {
  times: { ...{ denseLayer: NOTHING, expert: NOTHING, lmHead: NOTHING }, loadMs: 0, exponentShare: 0.5, recoverMs: 0 },
  memory: null,
};
