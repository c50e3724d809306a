import { allFinite } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ExpertId } from '../../shared/model/expert-id.js';

const FLOAT_BYTES = 4;
/** Masks of FP32: the sign does not matter, and bits above those of infinity are a NaN. */
const WITHOUT_SIGN = 0x7fffffff;
const INFINITY_BITS = 0x7f800000;

/** The output of one worker for an expert and its rows. */
export interface Opinion {
  readonly workerId: string;
  /** FP32, little-endian. */
  readonly output: Uint8Array;
}

/**
 * 'believed': the last worker gave finite values, and those before it did not, so these are at fault. 'agreed': two workers gave the same values that
 * are not finite, so the checkpoint or the prompt is at fault. 'open': another worker is to be asked.
 */
export type Verdict = 'believed' | 'agreed' | 'open';

/** Judges opinions of which all but the last have values that are not finite. */
export function judge(opinions: readonly Opinion[]): Verdict {
  const last = opinions.at(-1);
  if (last === undefined) return 'open';
  if (allFinite(last.output)) return 'believed';
  return opinions.slice(0, -1).some(({ output }) => sameValues(output, last.output)) ? 'agreed' : 'open';
}

/** Compares to the bit, except that any two NaNs are equal, as processors and GPUs make different ones. */
export function sameValues(left: Uint8Array, right: Uint8Array): boolean {
  if (left.byteLength !== right.byteLength) return false;
  if (Buffer.compare(left, right) === 0) return true;
  const [leftView, rightView] = [viewOf(left), viewOf(right)];
  for (let place = 0; place < left.byteLength; place += FLOAT_BYTES) {
    const [one, other] = [leftView.getUint32(place, true), rightView.getUint32(place, true)];
    if (one !== other && !(isNotANumber(one) && isNotANumber(other))) return false;
  }
  return true;
}

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

function isNotANumber(bits: number): boolean {
  return (bits & WITHOUT_SIGN) > INFINITY_BITS;
}

const CHECKPOINT_OR_PROMPT =
  'the checkpoint or this prompt is the cause, and no worker: another prompt may do; else download the checkpoint again and pack it anew';

/** The reason why the worker is set aside. */
export function lieOf({ layer, expert }: ExpertId, witness: string): string {
  return (
    `it gave values for expert ${expert} of layer ${layer} that are no finite numbers, where ${witness} gave finite ones for the same rows; a ` +
    'fault on the way between it and main cannot be told from one in its memory or device'
  );
}

/** The error when workers agree on the values: the checkpoint or the prompt is at fault. */
export function modelGivesNoNumbers({ layer, expert }: ExpertId, workerIds: readonly string[]): OdmoeError {
  return new OdmoeError(
    'MODEL_CORRUPT',
    `expert ${expert} of layer ${layer} gives values that are no finite numbers, the same ones on ${workerIds.join(' and ')}: ${CHECKPOINT_OR_PROMPT}`,
  );
}

/** The error when main's own part of a layer has given values that are not finite. */
export function layerGivesNoNumbers(layer: number): OdmoeError {
  return new OdmoeError(
    'MODEL_CORRUPT',
    `main's own part of layer ${layer} (attention, norms, router) gives values that are no finite numbers: ${CHECKPOINT_OR_PROMPT}; ` +
      "if that does not help, look at main's memory and device",
  );
}

/** The error when no further worker can be asked. */
export function undecided({ layer, expert }: ExpertId, opinions: readonly Opinion[]): OdmoeError {
  const ids = opinions.map(({ workerId }) => workerId);
  const found =
    ids.length === 1
      ? `${ids.join()} gave values for expert ${expert} of layer ${layer} that are no finite numbers, and no other worker could run it to compare`
      : `${ids.join(', ')} gave different values for expert ${expert} of layer ${layer}, and all of them are no finite numbers`;
  return new OdmoeError(
    'OUTPUT_NOT_FINITE',
    `${found}: it cannot be told whether a worker, the network to it, the checkpoint or this prompt is the cause. Start another worker and ` +
      'ask again: then main finds out',
  );
}
