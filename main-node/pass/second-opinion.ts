import { allFinite } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

const FLOAT_BYTES = 4;
/** Of FP32: the sign is of no account, and what is greater than an infinity is a NaN. */
const WITHOUT_SIGN = 0x7fffffff;
const INFINITY_BITS = 0x7f800000;

/** What one worker gave for an expert and its rows. */
export interface Opinion {
  readonly workerId: string;
  /** FP32, little-endian. */
  readonly output: Uint8Array;
}

/**
 * 'believed': the last of them has given numbers, and those before it none: they have lied. 'agreed': two have given the same values, and these
 * are no numbers: it is the checkpoint or the prompt. 'open': another one is to be asked.
 */
export type Verdict = 'believed' | 'agreed' | 'open';

/** Of opinions of which all but the last are no finite numbers. */
export function judge(opinions: readonly Opinion[]): Verdict {
  const last = opinions.at(-1);
  if (last === undefined) return 'open';
  if (allFinite(last.output)) return 'believed';
  return opinions.slice(0, -1).some(({ output }) => sameValues(output, last.output)) ? 'agreed' : 'open';
}

/** To the bit; but one NaN is as good as another, as processors and GPUs make different ones. */
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

/** "expert 3 of layer 2": whose values they are. */
export interface ExpertPlace {
  readonly layer: number;
  readonly expert: number;
}

const CHECKPOINT_OR_PROMPT =
  'the checkpoint or this prompt is the cause, and no worker: another prompt may do; else download the checkpoint again and pack it anew';

/** Why the worker is set aside. */
export function lieOf({ layer, expert }: ExpertPlace, witness: string): string {
  return (
    `it gave values for expert ${expert} of layer ${layer} that are no finite numbers, where ${witness} gave finite ones for the same rows; a ` +
    'fault on the way between it and main cannot be told from one in its memory or device'
  );
}

/** Workers agree: nobody is to blame but the model and what it was asked. */
export function modelGivesNoNumbers({ layer, expert }: ExpertPlace, workerIds: readonly string[]): OdmoeError {
  return new OdmoeError(
    'MODEL_CORRUPT',
    `expert ${expert} of layer ${layer} gives values that are no finite numbers, the same ones on ${workerIds.join(' and ')}: ${CHECKPOINT_OR_PROMPT}`,
  );
}

/** Main's own part of a layer has given none. */
export function layerGivesNoNumbers(layer: number): OdmoeError {
  return new OdmoeError(
    'MODEL_CORRUPT',
    `main's own part of layer ${layer} (attention, norms, router) gives values that are no finite numbers: ${CHECKPOINT_OR_PROMPT}; ` +
      "if that does not help, look at main's memory and device",
  );
}

/** Nobody is left to ask. */
export function undecided({ layer, expert }: ExpertPlace, opinions: readonly Opinion[]): OdmoeError {
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
