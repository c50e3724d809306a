/** The records of a checkpoint's quality.jsonl as tokens: the prompt by the chat template, the answer, the end. */
import { join } from 'node:path';
import { z } from 'zod';
import { promptTokenIds } from '../../engine/generation/prompt-encoder.js';
import { readFailure, readWholeFile } from '../../shared/base/files/read-file.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

export interface QualityRecord {
  readonly tokenIds: readonly number[];
  /** Index of the answer's first token. The answer and the token that ends it go to the end of tokenIds. */
  readonly answerFrom: number;
}

const RECORD = z.object({ prompt: z.string().min(1), answer: z.string().min(1) });

/**
 * The first `count` records beside the checkpoint; null: it has no such file.
 * @throws USAGE for a line that is not a record; TOKENIZER_INVALID, STORAGE_FAILED
 */
export async function qualityRecords(source: ModelSource, count: number): Promise<QualityRecord[] | null> {
  const path = join(source.directory, 'quality.jsonl');
  const text = await textOf(path);
  if (text === null) return null;
  const tokenizer = await loadTokenizer(source.directory);
  const [endTokenId] = source.eosTokenIds;
  if (endTokenId === undefined) throw new OdmoeError('USAGE', `${source.name} names no token that ends an answer`);
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return lines.slice(0, count).map((line, index) => {
    const parsed = RECORD.safeParse(jsonOf(line));
    if (!parsed.success)
      throw new OdmoeError('USAGE', `${path}: line ${index + 1} is no object with prompt and answer`);
    return recordOf(parsed.data, tokenizer, endTokenId);
  });
}

function recordOf({ prompt, answer }: z.infer<typeof RECORD>, tokenizer: Tokenizer, endTokenId: number): QualityRecord {
  const request = { text: prompt, messages: [], promptTokenIds: [], raw: false };
  const promptIds = promptTokenIds(request, tokenizer, 0);
  return {
    tokenIds: [...promptIds, ...tokenizer.encodeRendered(answer), endTokenId],
    answerFrom: promptIds.length,
  };
}

async function textOf(path: string): Promise<string | null> {
  try {
    return (await readWholeFile(path)).toString('utf8');
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return null;
    throw readFailure(thrown, path, { missing: 'USAGE', invalid: 'USAGE', remedy: 'give another checkpoint' });
  }
}

/** Undefined: the line is no JSON. */
function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch {
    return undefined;
  }
}
