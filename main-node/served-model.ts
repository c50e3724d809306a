import type { ServedModel } from '../http-api/http-api-context.js';
import type { Manifest } from '../packs/format/manifest.js';
import type { Pack } from '../packs/format/open-pack.js';
import { odmoeVersion } from '../shared/base/files/odmoe-version.js';
import type { Tokenizer } from '../shared/language/tokenizer/tokenizer.js';

/** Hexadecimal digits of the pack's digest in a fingerprint. */
const DIGEST_DIGITS = 12;

/** The facts that a served model is described by, beside its pack. */
interface ServingMain {
  tokenizer: Tokenizer | null;
  contextPositions: number;
  /** How answers are computed: "exact", "fast", or a sliced quality. */
  arithmetic: string;
  /** Empty where experts are computed exactly. */
  slicesDigest: string;
  wallMs: number;
}

/** The model of this pack as clients see it. */
export function servedModel(pack: Pack, main: ServingMain): ServedModel {
  const { manifest, packDigest, shape } = pack;
  return {
    name: pack.name,
    createdS: Math.floor(main.wallMs / 1000),
    fingerprint: fingerprintOf(packDigest, main),
    arithmetic: main.arithmetic,
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

/** Equal fingerprints, requests and seeds give equal answers, to the bit. */
function fingerprintOf(packDigest: string, { arithmetic, slicesDigest }: ServingMain): string {
  const digests = [packDigest, slicesDigest].filter((digest) => digest !== '');
  const shortened = digests.map((digest) => digest.slice(0, DIGEST_DIGITS));
  return ['odmoe', odmoeVersion(), ...shortened, arithmetic].join('-');
}

/** Number of values in matrices and vectors, including those of all experts. */
function countParameters({ dense, experts }: Manifest): number {
  const size = ({ rows, columns }: { rows: number; columns: number }): number => rows * columns;
  const main = dense.reduce((sum, tensor) => sum + size(tensor), 0);
  return experts.reduce((sum, { gate, up, down, biases }) => {
    return sum + size(gate) + size(up) + size(down) + (biases?.stored_bytes ?? 0) / FLOAT_BYTES;
  }, main);
}

const FLOAT_BYTES = 4;
