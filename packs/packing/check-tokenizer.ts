import { join } from 'node:path';
import { fileExists } from '../../shared/base/files/read-file.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';

/**
 * Loads the tokenizer of a checkpoint or pack, as main will. Call this before long work on it.
 * @returns a warning if the directory has a model without tokenizer.json; null: there is nothing to say
 * @throws TOKENIZER_INVALID, STORAGE_FAILED
 */
export async function checkTokenizer(directory: string): Promise<string | null> {
  const tokenizer = await openTokenizer(directory);
  if (tokenizer !== null || !(await fileExists(join(directory, 'config.json')))) return null;
  const other = (await fileExists(join(directory, 'tokenizer.model')))
    ? ' (tokenizer.model is there, and is not read)'
    : '';
  return (
    `${directory}: there is no tokenizer.json${other}, so the pack will take prompts as token ids only; if they are to be text, end this ` +
    "command, download tokenizer.json and tokenizer_config.json from the model's repository, and run it again"
  );
}
