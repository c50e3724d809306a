import type { Manifest } from '../../packs/format/manifest.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { PACK_FORMAT, PACK_FORMAT_VERSION } from '../../packs/format/pack-layout.js';
import type { Slices } from '../../packs/slices/open-slices.js';
import { SLICES_FORMAT, SLICES_FORMAT_VERSION, type SlicesManifest } from '../../packs/slices/slices-manifest.js';
import { STORAGE_FORMS, type StorageForm } from '../../engine/emulation/device-profile.js';
import { slicedStorage } from '../../engine/emulation/sliced-storage.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { ExpertSource, SlicedSplit, TensorSource } from '../../shared/model/tensor-source.js';
import { traceThresholds } from './trace-weights.js';

/** Filling a traced model's weights requires no read. */
const NO_TENSOR: TensorSource = { rows: 1, columns: 1, split: 'none-bf16', chunks: [], view: null };
/** Weights of one matrix of an expert. A cache's plan uses only the ratio of its parts; the real bytes come from the profile. */
const MATRIX_WEIGHTS = 4096;
const DIGEST_DIGITS = 64;

/** Stands for the pack of a model of which only a trace is known: it has a name and a shape, but no file. `form`: storage form of its experts. */
export function tracePack(name: string, shape: ModelShape, form: StorageForm = STORAGE_FORMS.bf16): Pack {
  const matrix = matrixOf(form);
  const expert: ExpertSource = { gate: matrix, up: matrix, down: matrix, biases: null };
  const digest = '0'.repeat(DIGEST_DIGITS);
  const manifest: Manifest = {
    format: PACK_FORMAT,
    format_version: PACK_FORMAT_VERSION,
    odmoe_version: '',
    model: {
      name,
      family: 'traced',
      shape,
      tied_embeddings: false,
      eos_token_ids: [],
      shipped_format: 'bf16',
    },
    source: { fingerprint: digest, left_out: [] },
    codec: 'raw',
    codec_level: null,
    shards: 1,
    files: [],
    dense: [],
    experts: [],
  };
  return {
    kind: 'pack',
    directory: '',
    name,
    shape,
    shippedFormat: 'bf16',
    eosTokenIds: [],
    packDigest: digest,
    tiedEmbeddings: false,
    manifest,
    dense: () => NO_TENSOR,
    expert: () => expert,
  };
}

/** Stands for the slices of such a pack. */
export function traceSlices({ shape }: Pack, split: SlicedSplit): Slices {
  const matrix = { ...matrixOf(slicedStorage({ kind: 'high', split })), split };
  const expert: ExpertSource = { gate: matrix, up: matrix, down: matrix, biases: null };
  const digest = '0'.repeat(DIGEST_DIGITS);
  const manifest: SlicesManifest = {
    format: SLICES_FORMAT,
    format_version: SLICES_FORMAT_VERSION,
    odmoe_version: '',
    split,
    source_fingerprint: digest,
    theta: traceThresholds(shape.expertsPerToken),
    files: [],
    experts: [],
  };
  return { directory: '', split, opened: 'both', digest, manifest, expert: () => expert };
}

/** A matrix with one chunk of exponents and one of signs and mantissas. */
function matrixOf({ exponentBytes, storedBytes }: StorageForm): TensorSource {
  const parts = [exponentBytes, storedBytes - exponentBytes].map((bytes) => Math.ceil(bytes * MATRIX_WEIGHTS));
  return {
    rows: MATRIX_WEIGHTS,
    columns: 1,
    split: 'bf16-e8-sm8',
    view: null,
    chunks: parts.map((stored, plane) => ({
      plane,
      path: '',
      offsetBytes: plane * MATRIX_WEIGHTS,
      codec: 'raw',
      crc32c: null,
      storedBytes: stored,
      plainBytes: plane === 0 ? MATRIX_WEIGHTS : stored,
    })),
  };
}
