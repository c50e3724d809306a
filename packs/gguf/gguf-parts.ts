import { basename, dirname, join } from 'node:path';
import { corruptGguf, shownGgufValue } from './gguf-errors.js';
import { TENSORS_LIMIT, type GgufHeader } from './gguf-header.js';
import { GgufKeyReader } from './gguf-keys.js';
import type { GgufModel, GgufPart, GgufTensor } from './gguf-types.js';

/** Names that llama-gguf-split gives: NAME-00001-of-00003.gguf. */
const PART_NAME = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/s;
/** The keys hold a part's number in 16 bits. */
const PARTS_LIMIT = 65_535;

/** A file as its name says it: one part, from 1, of the count. */
export interface PartName {
  number: number;
  count: number;
  /** Paths of all parts, the first one first. */
  paths: readonly string[];
}

/** Reads the name of a part, or null: the file's name is not one. */
export function readPartName(path: string): PartName | null {
  const [, stem, number, count] = PART_NAME.exec(basename(path)) ?? [];
  if (stem === undefined || number === undefined || count === undefined) return null;
  const parts = Number(count);
  const isPart = Number(number) >= 1 && Number(number) <= parts && parts <= PARTS_LIMIT;
  if (!isPart) return null;
  const paths = Array.from({ length: parts }, (_, index) =>
    join(dirname(path), `${stem}-${String(index + 1).padStart(5, '0')}-of-${count}.gguf`),
  );
  return { number: Number(number), count: parts, paths };
}

/** A file that was read. */
export interface GgufFile {
  part: GgufPart;
  header: GgufHeader;
}

/**
 * Checks what a part says of itself: its number and the count of parts. A file that is not split may say that it is the only one.
 * @param index from 0
 * @throws MODEL_CORRUPT
 */
export function checkPart({ part, header }: GgufFile, index: number, count: number): void {
  const keys = new GgufKeyReader(header.keys, part.path, 'split.');
  const said = count === 1 ? keys.integerOr(1, 'count') : keys.integer('count');
  const number = count === 1 && said <= 1 ? keys.integerOr(0, 'no') : keys.integer('no');
  if (number === index && (said === count || (count === 1 && said === 0))) return;
  throw corruptGguf(
    part.path,
    `its keys say that it is part ${number + 1} of ${said}, but it stands for part ${index + 1} of ${count}; give each part the name ` +
      'NAME-00001-of-00003.gguf with its own numbers, or get the parts that belong together',
  );
}

/**
 * Joins the parts of a model. Only the first has the keys of the model.
 * @param files all of them, in order, each checked by checkPart
 * @throws MODEL_CORRUPT
 */
export function joinParts(files: readonly [GgufFile, ...GgufFile[]]): GgufModel {
  const [first] = files;
  const tensors = new Map<string, GgufTensor>();
  for (const { header, part } of files) {
    if (tensors.size + header.tensors.size > TENSORS_LIMIT) {
      throw corruptGguf(part.path, `the parts up to this one have more than ${TENSORS_LIMIT} tensors`);
    }
    for (const [name, tensor] of header.tensors) {
      const other = tensors.get(name);
      if (other !== undefined) {
        throw corruptGguf(part.path, `tensor ${shownGgufValue(name)} stands also in ${other.path}`);
      }
      tensors.set(name, tensor);
    }
  }
  for (const { header, part } of files) {
    const keys = new GgufKeyReader(header.keys, part.path, 'split.');
    const said = files.length === 1 ? keys.integerOr(tensors.size, 'tensors.count') : keys.integer('tensors.count');
    if (said !== tensors.size) {
      throw corruptGguf(
        part.path,
        `key "split.tensors.count" says ${said} tensors, but the ${files.length} parts have ${tensors.size}`,
      );
    }
  }
  return {
    path: first.part.path,
    parts: files.map(({ part }) => part),
    keys: first.header.keys,
    tensors,
  };
}
