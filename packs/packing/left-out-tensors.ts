import type { Checkpoint } from '../../shared/checkpoint/checkpoint.js';
import type { ManifestLeftOut } from '../format/manifest.js';

/** Tensors whose names differ in numbers alone as one line each: of a layer that is left out there may be a thousand. Sorted by name. */
export function groupedNames(tensors: Iterable<{ name: string; sizeBytes: number }>): ManifestLeftOut[] {
  const groups = new Map<string, ManifestLeftOut>();
  for (const { name, sizeBytes } of tensors) {
    const pattern = name.replaceAll(/\d+/g, '*');
    const group = groups.get(pattern) ?? { name: pattern, tensors: 0, size_bytes: 0 };
    groups.set(pattern, group);
    group.tensors += 1;
    group.size_bytes += sizeBytes;
  }
  return [...groups.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** What a model does not need of its checkpoint. */
export function leftOutTensors({ files, leftOut }: Pick<Checkpoint, 'files' | 'leftOut'>): ManifestLeftOut[] {
  const tensors = new Map(files.flatMap((file) => [...file.tensors]));
  return groupedNames(leftOut.map((name) => ({ name, sizeBytes: tensors.get(name)?.sizeBytes ?? 0 })));
}
