import { assignmentOf } from '../../../shared/decisions/placement/assignment-of.js';
import { expertsByWorker } from '../../../shared/decisions/placement/experts-by-worker.js';
import type { ExecuteResult, Placement } from '../../../shared/wire/messages.js';
import type { AnswerAccount } from './answer-account.js';
import { isAlone } from './answer-account.js';
import { predictsItself, type PredictionBook } from './prediction-book.js';
import { pairsOf, type JointPass } from './ran-passes.js';

/** The reported recall must follow from the predictions and the router's choices. */
export function checkRecall(answer: AnswerAccount, book: PredictionBook): string[] {
  const { account, finished, decodes } = answer;
  const wasPredicted = predictsItself(answer) || account.events.some(({ kind }) => kind === 'begin');
  const { sep } = finished;
  if (wasPredicted !== (sep !== null))
    return [
      `recall is ${sep === null ? 'not ' : ''}reported where experts were ${wasPredicted ? '' : 'not '}predicted`,
    ];
  if (sep === null) return [];
  // For rows of several sequences, main's messages to workers do not show which rows main's predictions are for.
  const isExact = !predictsItself(answer) || [...decodes].every(([pass, at]) => at === null || isAlone(pass, decodes));
  const isRight =
    sep.activated === book.activated &&
    (!isExact || (sep.predictedCorrectly === book.predictedCorrectly && sep.late === book.late));
  if (isRight) return [];
  return [
    `recall is reported as ${sep.predictedCorrectly} of ${sep.activated}, ${sep.late} late; ` +
      `it was ${book.predictedCorrectly} of ${book.activated}, ${book.late} late`,
  ];
}

/**
 * Checks the number of reloads: experts of the answer's rows that were not announced and were not in a slot when main asked. `announcedExperts`: "layer
 * expert" of announced experts, by pass. `results`: by "worker request".
 */
export function checkReloads(
  { account, decodes, finished }: AnswerAccount,
  announcedExperts: ReadonlyMap<JointPass, ReadonlySet<string>>,
  results: ReadonlyMap<string, readonly ExecuteResult[]>,
): string[] {
  let reloads = 0;
  for (const { of } of account.passes) {
    const decode = decodes.get(of) ?? null;
    if (decode === null) continue;
    for (const { worker, execute } of of.executes) {
      const own = new Set(
        pairsOf(execute)
          .filter(({ whose, position }) => whose === account.sequence && position >= decode)
          .map(({ expert }) => expert),
      );
      for (const { experts } of results.get(`${worker} ${execute.requestId}`) ?? [])
        for (const { expert, wasLoaded } of experts)
          if (own.has(expert) && !wasLoaded && announcedExperts.get(of)?.has(`${execute.layer} ${expert}`) !== true)
            reloads += 1;
    }
  }
  if (finished.reloads === reloads) return [];
  return [`${finished.reloads} reloads are reported, ${reloads} experts were loaded on the router's word`];
}

/**
 * Every prediction that shadow sends to main it must also send to the workers, to each the experts of that worker. Predictions that are late
 * or for main only go to main alone.
 */
export function checkSentPredictions({ account }: AnswerAccount): string[] {
  const placement = account.placement as Placement;
  const problems: string[] = [];
  const sentTo = new Map<string, string>();
  let mainAt = -1;
  for (const event of account.events) {
    if (event.kind === 'tokenArrived') mainAt = Math.max(mainAt, event.token.position);
    if (event.kind === 'predicted' && event.prediction.experts.length > 0)
      sentTo.set(event.worker, event.prediction.experts.join(' '));
    if (event.kind !== 'predictionSent') continue;
    const { prediction } = event;
    const assignment = prediction.mainAnnounces === true ? [] : assignmentOf(placement, prediction);
    const due = [...expertsByWorker(assignment)].map(([worker, experts]) => `${worker}: ${experts.join(' ')}`);
    const sent = [...sentTo].map(([worker, experts]) => `${worker}: ${experts}`);
    const isLate = sentTo.size === 0 && mainAt > prediction.pass.position;
    if (!isLate && due.sort().join() !== sent.sort().join())
      problems.push(
        `of layer ${prediction.layer} of the pass at ${prediction.pass.position} shadow sent to workers ${sent.join(', ') || 'nothing'}, main ${due.join(', ')}`,
      );
    sentTo.clear();
  }
  return problems;
}
