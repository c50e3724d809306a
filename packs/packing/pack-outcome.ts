import type { CodecSetting } from '../format/pack-codec.js';
import type { LeftOutTensors } from './left-out-tensors.js';

/** The result of packing. */
export interface PackOutcome {
  directory: string;
  name: string;
  family: string;
  /** Tensors of the checkpoint that the model does not need. */
  leftOut: readonly LeftOutTensors[];
  digest: string;
  codec: CodecSetting;
  sourceBytes: number;
  packBytes: number;
  files: number;
  /** Number of files that an earlier, interrupted run had finished. */
  resumedFiles: number;
  /** Number of weight files of the checkpoint that were deleted. */
  consumedShards: number;
  /** True if the directory already held the whole pack of this checkpoint. */
  alreadyWhole: boolean;
}
