/** Models of any shape with random weights, for tests of results that must be the same to the bit. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Device, ExpertSlots, Model } from '../../native/index.js';
import { FROM_STORAGE, PLAIN_LOADER } from '../../native/index.js';
import { denseDimensions, densePlaces, isVectorRole, type DenseRole } from '../../shared/model/dense-roles.js';
import { expertLimits, expertRowSize, gateRows, type ModelShape } from '../../shared/model/model-shape.js';
import type { ExpertSource, TensorSource } from '../../shared/model/tensor-source.js';

const NORM_ROLES: readonly DenseRole[] = [
  ...(['finalNorm', 'mixerNorm', 'mixerOutputNorm', 'queryNorm', 'keyNorm', 'queryLowNorm', 'latentNorm'] as const),
  ...(['indexKeyNorm', 'indexQueryNorm', 'stateSpaceNorm', 'poolNorm', 'indexPoolNorm'] as const),
  ...(['deltaNorm', 'feedForwardNorm', 'routedNorm', 'routerNorm', 'alwaysOutputNorm', 'routedOutputNorm'] as const),
  ...(['feedForwardOutputNorm', 'layerScale', 'expertScale'] as const),
  ...(['mixerStreamScale', 'feedForwardStreamScale', 'finalStreamScale'] as const),
];

/** xorshift32; values about -1.7 to 1.7 with variance 1. */
function randomValues(count: number, seed: number, scale: number, offset: number): Float32Array {
  let state = seed * 2654435761 + 1;
  return Float32Array.from({ length: count }, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return offset + scale * Math.sqrt(12) * ((state >>> 0) / 2 ** 32 - 0.5);
  });
}

/** Weights in one file that is deleted with dispose(). */
export class RandomWeights {
  readonly tiedEmbeddings = false;
  private readonly directory = mkdtempSync(join(tmpdir(), 'odmoe-random-model-'));
  private readonly path = join(this.directory, 'weights');
  private readonly tensors = new Map<string, TensorSource>();
  private readonly experts: ExpertSource[][] = [];
  private readonly pieces: Uint8Array[] = [];
  private bytes = 0;
  private seed = 1;

  constructor(readonly shape: ModelShape) {
    for (const place of densePlaces(shape, false)) {
      const { rows, columns } = denseDimensions(place, shape);
      if (place.role === 'tokenExperts') {
        this.tensors.set(`${place.role} ${place.layer}`, this.addTokenExperts(rows, columns));
        continue;
      }
      const [scale, offset] = isVectorRole(place.role)
        ? NORM_ROLES.includes(place.role)
          ? [0.2, 1]
          : [0.5, 0]
        : [1 / Math.sqrt(columns), 0];
      this.tensors.set(`${place.role} ${place.layer}`, this.add(rows, columns, scale, offset));
    }
    const { expert } = shape;
    const hiddenSize = expertRowSize(shape);
    const inner = expert.intermediateSize;
    const gates = gateRows(expert);
    const limits = expertLimits(shape);
    for (let layer = 0; layer < shape.expertLayers; layer++) {
      this.experts.push(
        Array.from({ length: shape.experts }, () => ({
          gate: this.add(gates, hiddenSize, 2 / Math.sqrt(hiddenSize), 0),
          up: this.add(gates, hiddenSize, 2 / Math.sqrt(hiddenSize), 0),
          down: this.add(hiddenSize, inner, 1 / Math.sqrt(inner), 0),
          biases: expert.bias ? randomValues(2 * inner + hiddenSize, this.seed++, 0.3, 0) : null,
          gluLimit: limits[layer],
        })),
      );
    }
    writeFileSync(this.path, Buffer.concat(this.pieces));
  }

  /** Each token's experts, none twice. */
  private addTokenExperts(tokens: number, perToken: number): TensorSource {
    const { experts } = this.shape;
    const named = Int32Array.from({ length: tokens * perToken }, (_, index) => {
      const [token, rank] = [Math.floor(index / perToken), index % perToken];
      return (5 * token + experts - rank) % experts;
    });
    return this.addValues(tokens, perToken, new Float32Array(named.buffer));
  }

  private add(rows: number, columns: number, scale: number, offset: number): TensorSource {
    return this.addValues(rows, columns, randomValues(rows * columns, this.seed++, scale, offset));
  }

  private addValues(rows: number, columns: number, values: Float32Array): TensorSource {
    const size = values.byteLength;
    const chunk = { plane: 0, path: this.path, offsetBytes: this.bytes, storedBytes: size, plainBytes: size };
    this.pieces.push(new Uint8Array(values.buffer));
    this.bytes += size;
    return { rows, columns, split: 'none-fp32', chunks: [{ ...chunk, codec: 'raw', crc32c: null }], view: null };
  }

  /** A tensor that the model has. */
  dense(role: DenseRole, layer: number): TensorSource {
    const found = this.tensors.get(`${role} ${layer}`);
    if (found === undefined) throw new Error(`no ${role} of layer ${layer}`);
    return found;
  }

  expert(layer: number, expert: number): ExpertSource {
    const found = this.experts[layer]?.[expert];
    if (found === undefined) throw new Error(`no expert ${expert} of expert layer ${layer}`);
    return found;
  }

  /** `shape`: one of the same experts that has no other tensors. */
  async load(device: Device, experts: boolean, shape = this.shape): Promise<Model> {
    const model = device.createModel(shape);
    for (const { role, layer } of densePlaces(shape, false)) {
      const source = this.tensors.get(`${role} ${layer}`);
      if (source !== undefined) await model.loadDense(role, layer, source, 'fp32');
    }
    for (const [layer, sources] of this.experts.entries()) {
      for (const [expert, source] of sources.entries()) {
        if (experts) await model.loadResidentExpert(layer, expert, source, 'fp32');
      }
    }
    return model;
  }

  dispose(): void {
    rmSync(this.directory, { recursive: true });
  }
}

/** Runs an expert on one row as a worker does. */
export async function executeInSlot(
  slots: ExpertSlots,
  source: ExpertSource,
  hidden: Uint8Array,
  output: Uint8Array,
): Promise<void> {
  await slots.load(0, slots.register(source), FROM_STORAGE);
  await slots.execute(0, 1, hidden, output);
}

export function slotsFor(device: Device, shape: ModelShape): ExpertSlots {
  return device.createExpertSlots(
    { hiddenSize: expertRowSize(shape), glu: shape.expert, format: 'fp32' },
    1,
    1,
    PLAIN_LOADER,
  );
}
