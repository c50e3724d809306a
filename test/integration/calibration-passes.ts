/** Whole passes over the text that odmoe pack measures with, for models that hold all experts in memory. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Model, RouterChoice } from '../../native/index.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';

/** Tokens of the text that odmoe pack runs. */
export const CALIBRATION_ROWS = 512;

/** Runs the first tokens of the text, each passage by itself. `directory`: of the model's tokenizer; `onRouter`: once for each layer of a passage. */
export async function runCalibrationText(
  model: Model,
  directory: string,
  onRouter: (choice: RouterChoice) => void,
): Promise<void> {
  const tokenizer = await loadTokenizer(directory);
  const text = await readFile(join(packageRoot(), 'models', 'calibration.txt'), 'utf8');
  let left = CALIBRATION_ROWS;
  for (const passage of text.trim().split('\n\n')) {
    const ids = Int32Array.from(tokenizer.encode(passage)).subarray(0, left);
    if (ids.length === 0) break;
    left -= ids.length;
    const pass = model.createPass(ids.length);
    const sequence = model.createSequence();
    const positions = ids.map((_, row) => row);
    await pass.begin([sequence], new Int32Array(ids.length), positions, ids);
    await pass.forward((_layer, choice) => onRouter(choice));
    for (const used of [sequence, pass]) used.dispose();
  }
}
