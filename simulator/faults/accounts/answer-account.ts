import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import type { ModelShape } from '../../../shared/model/model-shape.js';
import type { Finished } from '../../../shared/wire/messages.js';
import type { JointPass } from './ran-passes.js';
import type { SequenceAccount } from './sequence-account.js';

/** An answer that ended successfully, with the messages and passes of its sequence. */
export interface AnswerAccount {
  account: SequenceAccount;
  settings: NodeSettings;
  /** Main has sound trained maps, and may use them. */
  hasMaps: boolean;
  promptTokens: number;
  promptIds: readonly number[];
  /** Tokens of the answer. */
  tokenIds: readonly number[];
  /** Most tokens that the request allows. */
  maxTokens: number;
  finished: Finished;
  shape: ModelShape;
  /** By pass: position of the first row that belongs to the answer and runs for the first time or as a draft; null: the pass has no such row. */
  decodes: ReadonlyMap<JointPass, number | null>;
}

/** Rows before main's newest token belong to the prompt or are computed again. */
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

/** True if the pass has only rows of one sequence's answer. */
export function isAlone(pass: JointPass, decodes: ReadonlyMap<JointPass, number | null>): boolean {
  return pass.members.length === 1 && decodes.get(pass) === pass.members[0]?.position;
}
