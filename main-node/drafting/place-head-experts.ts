import type { NodeSettings } from '../../shared/settings/node-settings.js';

/** The most of the memory that the weights leave which the head's experts may take by themselves: rows of answers need the rest. */
const SHARE_OF_HEAD_EXPERTS = 0.5;

export interface HeadExpertsPlace {
  readonly setting: NodeSettings['drafting']['headExperts'];
  /** main.experts. With `local` there are no workers. */
  readonly experts: NodeSettings['main']['experts'];
  /** Bytes of the experts of the model's own head. */
  readonly expertBytes: number;
  /** Bytes that main's device has left beside the weights; null: not known. */
  readonly leftBytes: number | null;
}

/** True if workers run the experts of the model's own head. `auto`: main has no room for them. */
export function headExpertsAtWorkers({ setting, experts, expertBytes, leftBytes }: HeadExpertsPlace): boolean {
  if (setting !== 'auto') return setting === 'workers';
  return experts !== 'local' && leftBytes !== null && expertBytes > leftBytes * SHARE_OF_HEAD_EXPERTS;
}
