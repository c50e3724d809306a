import type { Checkpoint } from '../checkpoint/checkpoint.js';

/** Tensors of a checkpoint that the model does not need and whose names differ only in numbers (`*`). */
export interface LeftOutTensors {
  name: string;
  tensors: number;
  sizeBytes: number;
}

/** Tensors of its checkpoint that a model does not need, grouped and sorted by name: one layer that is left out may have a thousand tensors. */
export function leftOutTensors({
  files,
  leftOut,
  draftHead,
}: Pick<Checkpoint, 'files' | 'leftOut' | 'draftHead'>): LeftOutTensors[] {
  const tensors = new Map(files.flatMap((file) => [...file.tensors]));
  const groups = new Map<string, LeftOutTensors>();
  for (const name of leftOut) {
    if (draftHead?.used.has(name) === true) continue;
    const pattern = name.replaceAll(/\d+/g, '*');
    const group = groups.get(pattern) ?? { name: pattern, tensors: 0, sizeBytes: 0 };
    groups.set(pattern, group);
    group.tensors += 1;
    group.sizeBytes += tensors.get(name)?.sizeBytes ?? 0;
  }
  return [...groups.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Says that a checkpoint's head cannot be read; null: there is nothing to say. */
export function draftHeadWarning({ draftHeadProblem: problem }: Pick<Checkpoint, 'draftHeadProblem'>): string | null {
  return problem ? `the head that drafts tokens is left out: ${problem}` : null;
}
