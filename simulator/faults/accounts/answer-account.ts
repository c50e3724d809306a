import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import type { ModelShape } from '../../../shared/model/model-shape.js';
import type { Finished } from '../../../shared/wire/messages.js';
import type { JointPass } from './ran-passes.js';
import type { SequenceAccount } from './sequence-account.js';

/** An answer that came to its end, with all that was said and run of it. */
export interface AnswerAccount {
  account: SequenceAccount;
  settings: NodeSettings;
  promptTokens: number;
  promptIds: readonly number[];
  /** Of the answer. */
  tokenIds: readonly number[];
  /** Most tokens that it may have. */
  maxTokens: number;
  finished: Finished;
  shape: ModelShape;
  /** By pass: where the rows begin that are of the answer and run for the first time, or as drafts; null: there are none. */
  decodes: ReadonlyMap<JointPass, number | null>;
}

/** Rows in front of main's newest token are of the prompt, or are computed again. */
export function decodesOf(
  { passes }: SequenceAccount,
  promptIds: readonly number[],
  tokenIds: readonly number[],
): Map<JointPass, number | null> {
  const all = [...promptIds, ...tokenIds];
  const decodes = new Map<JointPass, number | null>();
  let newest = promptIds.length;
  for (const { position, tokenIds: ran, of } of passes) {
    const end = position + ran.length;
    decodes.set(of, newest >= position && newest < end ? newest : null);
    while (newest >= position && newest < end && ran[newest - position] === all[newest]) newest += 1;
  }
  return decodes;
}

/** Rows of one sequence's answer and nothing else. */
export function isAlone(pass: JointPass, decodes: ReadonlyMap<JointPass, number | null>): boolean {
  return pass.members.length === 1 && decodes.get(pass) === pass.members[0]?.position;
}
