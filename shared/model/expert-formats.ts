import { EXPERT_MATRICES, type ExactFormat, type ExpertMatrix, type ExpertSource } from './tensor-source.js';
import { exactFormatOf } from './weight-dtype.js';

/** The formats in which an expert's matrices are shipped. */
export type ExpertFormats = Readonly<Record<ExpertMatrix, ExactFormat>>;

/** Those of all experts, each combination once, in the order in which they come. */
export function expertFormats(experts: Iterable<ExpertSource>): ExpertFormats[] {
  const found = new Map<string, ExpertFormats>();
  for (const { gate, up, down } of experts) {
    const formats = { gate: exactFormatOf(gate.split), up: exactFormatOf(up.split), down: exactFormatOf(down.split) };
    const key = EXPERT_MATRICES.map((matrix) => formats[matrix]).join();
    if (!found.has(key)) found.set(key, formats);
  }
  return [...found.values()];
}
