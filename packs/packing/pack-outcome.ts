import type { CodecSetting } from '../format/pack-codec.js';

/** What packing has done. */
export interface PackOutcome {
  directory: string;
  name: string;
  digest: string;
  codec: CodecSetting;
  sourceBytes: number;
  packBytes: number;
  files: number;
  /** Files that an earlier, interrupted run had finished. */
  resumedFiles: number;
  /** The directory already held the whole pack of this checkpoint. */
  alreadyWhole: boolean;
}
