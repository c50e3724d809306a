import { realpath } from 'node:fs/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { HubRepository } from './hub-repository.js';

/** Refusals of what a model is, wherever its files lie. Others are about that place, and name it. */
const REFUSALS: ReadonlySet<ErrorCode> = new Set([
  'MODEL_NOT_FOUND',
  'MODEL_UNSUPPORTED',
  'MODEL_CORRUPT',
  'TOKENIZER_INVALID',
]);

/** Runs a check of the files in `directory`, whose refusals name the model in place of the directory, which may be gone by then. */
export async function namingModel<Result>(
  { id }: HubRepository,
  directory: string,
  check: () => Promise<Result>,
): Promise<Result> {
  const absolute = await realpath(directory).catch(() => directory);
  try {
    return await check();
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError) || !REFUSALS.has(thrown.code)) throw thrown;
    throw new OdmoeError(thrown.code, inWordsOfModel(thrown.message, id, absolute), { cause: thrown });
  }
}

/** Words about files in a directory as words about those of a model. Pure. */
export function inWordsOfModel(words: string, id: string, directory: string): string {
  const named = words.replaceAll(`${directory}/`, '').replaceAll(directory, id);
  return named.startsWith(`${id}:`) ? named : `${id}: ${named}`;
}
