import type { NodeSettings } from '../../../shared/config/node-settings.js';
import type { ModelShape } from '../../../shared/model/model-shape.js';
import type { GenerateRequest, Placement } from '../../../shared/rpc/messages.js';
import type { SimulatedAnswer } from '../../cluster/simulated-cluster.js';
import type { Violation } from './violation.js';
import { checkAlignment, checkDrafts, type AnswerAccount } from './check-alignment.js';
import { checkExecutes } from './check-executes.js';
import { checkPredictions } from './check-predictions.js';
import type { Recorded } from './recorder.js';
import { accountsOf, type SequenceAccount } from './sequence-account.js';

/** What was recorded while nothing was wrong with the cluster, and what was asked of it meanwhile. */
export interface CalmTime {
  events: readonly Recorded[];
  /** main's. */
  settings: NodeSettings;
  shape: ModelShape;
  /** That held when the record began; null: none did. */
  placement: Placement | null;
  answers: readonly { answer: SimulatedAnswer; request: GenerateRequest }[];
}

/**
 * Bits hide what only costs time or memory. Where nothing goes wrong every message is due or not: executes are the router's choices, releases
 * what was told of and not chosen, rows and tokens for shadow what main has run, and the figures of an answer what all of that adds up to.
 */
export function checkAccounts({ events, settings, shape, placement, answers }: CalmTime): Violation[] {
  const accounts = accountsOf(events, settings.id, placement);
  const problems: Violation[] = [];
  for (const { answer, request } of answers) {
    const { finished, tokens, promptTokenIds } = answer;
    if (finished === null || promptTokenIds.length === 0) continue;
    const tokenIds = tokens.map(({ tokenId }) => tokenId);
    const account = takeAccount(accounts, [...promptTokenIds, ...tokenIds]);
    if (account === null) {
      problems.push({
        invariant: 'accounts add up',
        detail: `of an answer asked for at ${answer.askedMs} ms no pass is known`,
      });
      continue;
    }
    if (account.placement === null || account.troubled || shadowsOf(account) > 1) continue;
    const promptTokens = promptTokenIds.length;
    const maxTokens = request.maxTokens;
    const whole: AnswerAccount = { account, settings, promptTokens, tokenIds, maxTokens, finished, shape };
    const found = [
      ...checkExecutes(account, promptTokens),
      ...checkPredictions(whole),
      ...checkAlignment(whole),
      ...checkDrafts(whole),
    ];
    for (const what of found)
      problems.push({ invariant: 'accounts add up', detail: `the answer asked for at ${answer.askedMs} ms: ${what}` });
  }
  return problems;
}

/** The account whose passes have run these tokens; it is taken out of the list. */
function takeAccount(accounts: SequenceAccount[], tokenIds: readonly number[]): SequenceAccount | null {
  const place = accounts.findIndex(({ passes }) => {
    const ran: number[] = [];
    for (const { position, tokenIds: ofPass } of passes) {
      ran.length = position;
      ran.push(...ofPass);
    }
    // The token sampled last is not run; drafts behind it may have been.
    return ran.length >= tokenIds.length - 1 && tokenIds.slice(0, -1).every((tokenId, index) => ran[index] === tokenId);
  });
  return place < 0 ? null : (accounts.splice(place, 1)[0] ?? null);
}

function shadowsOf({ events }: SequenceAccount): number {
  return new Set(events.flatMap((event) => (event.kind === 'begin' ? [event.shadow] : []))).size;
}
