import type { Pack } from '../packs/format/open-pack.js';
import type { Manifest } from '../packs/format/manifest.js';
import { odmoeVersion } from '../shared/base/files/odmoe-version.js';
import type { Tokenizer } from '../shared/language/tokenizer/tokenizer.js';
import type { ServedModel } from '../http-api/door-context.js';

/** Hexadecimal digits of the pack's digest in a fingerprint. */
const DIGEST_DIGITS = 12;

/** What a model is served as. */
export interface ServingMain {
  tokenizer: Tokenizer | null;
  contextPositions: number;
  /** Of the devices that make the answer's bits. */
  arithmetic: 'exact' | 'fast';
  wallMs: number;
}

export function servedModel(pack: Pack, main: ServingMain): ServedModel {
  const { manifest, packDigest, shape } = pack;
  return {
    name: pack.name,
    createdS: Math.floor(main.wallMs / 1000),
    fingerprint: fingerprintOf(packDigest, main.arithmetic),
    packDigest,
    tokenizer: main.tokenizer,
    contextPositions: main.contextPositions,
    vocabSize: shape.vocabSize,
    family: manifest.model.family,
    parameters: countParameters(manifest),
    weightFormat: pack.shippedFormat.toUpperCase(),
    packBytes: manifest.files.reduce((sum, file) => sum + file.size_bytes, 0),
  };
}

/** Equal fingerprints, requests and seeds have equal answers, to the bit. */
export function fingerprintOf(packDigest: string, arithmetic: 'exact' | 'fast'): string {
  return `odmoe-${odmoeVersion()}-${packDigest.slice(0, DIGEST_DIGITS)}-${arithmetic}`;
}

/** Weights of matrices and vectors, those of all experts included. */
function countParameters({ dense, experts }: Manifest): number {
  const size = ({ rows, columns }: { rows: number; columns: number }): number => rows * columns;
  const main = dense.reduce((sum, tensor) => sum + size(tensor), 0);
  return experts.reduce((sum, { gate, up, down, biases }) => {
    return sum + size(gate) + size(up) + size(down) + (biases?.stored_bytes ?? 0) / FLOAT_BYTES;
  }, main);
}

const FLOAT_BYTES = 4;
