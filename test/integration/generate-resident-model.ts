import { createLocalRunner } from '../../engine/generation/local-runner.js';
import type { SequenceRunner } from '../../engine/generation/sequence-runner.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { openDevice, type DeviceOptions, type ResidentWeights } from '../../native/index.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

/** A model with all its experts, to run sequences of and look at their logits and experts. */
export interface ResidentTestModel {
  readonly source: ModelSource;
  readonly weights: ResidentWeights;
  createRunner(
    prefillRows: number,
    onExperts?: (position: number, layer: number, experts: number[]) => void,
  ): SequenceRunner;
  dispose(): void;
}

export async function openResidentModel(
  directory: string,
  device: Partial<DeviceOptions> = {},
  resident: 'fixed4' | null = null,
): Promise<ResidentTestModel> {
  const source = await openModelSource(directory);
  const opened = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 2, budgetBytes: 0, ...device });
  const model = opened.createModel(source.shape);
  const format = resident ?? 'shipped';
  await loadDenseWeights(model, source, format);
  await loadResidentExperts(model, source, format);
  return {
    source,
    weights: model.residentWeights(),
    createRunner: (prefillRows, onExperts) =>
      createLocalRunner(model, source.shape, prefillRows, (position, layer, experts) =>
        onExperts?.(position, layer, [...experts]),
      ),
    dispose() {
      model.dispose();
      opened.dispose();
    },
  };
}

/** Logits of the prompt's last token and of each further token, as bits. */
export async function logitBits(
  model: Pick<ResidentTestModel, 'createRunner'>,
  promptIds: readonly number[],
  furtherIds: readonly number[],
  prefillRows: number,
): Promise<Uint32Array[]> {
  const runner = model.createRunner(prefillRows);
  try {
    const bits = [bitsOf(await runner.prefill(promptIds))];
    for (const id of furtherIds) bits.push(bitsOf(await runner.decode(id)));
    return bits;
  } finally {
    await runner.end();
  }
}

function bitsOf(logits: Float32Array): Uint32Array {
  const copy = Float32Array.from(logits);
  return new Uint32Array(copy.buffer);
}
