import { DRAFT_MAKERS } from '../drafting/choose-drafts.js';
import { Counter, Histogram, type Registry } from 'prom-client';
import type { RequestEnd, RequestObserver } from '../rpc/request-observer.js';

/**
 * Bucket bounds in seconds, each about 2.5 times the one before. They range from a model in memory to one that is loaded from slow disks for every
 * token.
 */
const TOKEN_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const FIRST_TOKEN_BUCKETS_S = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800];
const REQUEST_BUCKETS_S = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 10_800];
const QUEUE_BUCKETS_S = [0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

/** Metrics of requests as they come and end. Times are main's, from a request's arrival there. */
export class RequestMetrics implements RequestObserver {
  private readonly requests: Counter<'code'>;
  private readonly promptTokens: Counter;
  private readonly cachedTokens: Counter;
  private readonly generatedTokens: Counter;
  private readonly queue: Histogram;
  private readonly firstTokens: Histogram;
  private readonly laterTokens: Histogram;
  private readonly durations: Histogram<'code'>;
  private readonly activations: Counter<'prediction'>;
  private readonly reloads: Counter;
  private readonly stalls: Counter;
  private readonly proposed: Counter;
  private readonly accepted: Counter;
  private readonly draftsOfSources: Counter<'source' | 'verdict'>;

  constructor(registry: Registry) {
    const counter = (name: string, help: string): Counter => new Counter({ name, help, registers: [registry] });
    const histogram = (name: string, help: string, buckets: number[]): Histogram =>
      new Histogram({ name, help, buckets, registers: [registry] });
    this.requests = new Counter({
      name: 'odmoe_requests_total',
      help: 'Requests that have ended, by "ok" or the code of their error.',
      labelNames: ['code'],
      registers: [registry],
    });
    this.durations = new Histogram({
      name: 'odmoe_request_duration_seconds',
      help: 'From the arrival of a request to its end, by "ok" or the code of its error.',
      labelNames: ['code'],
      buckets: REQUEST_BUCKETS_S,
      registers: [registry],
    });
    this.queue = histogram(
      'odmoe_request_queue_seconds',
      'From the arrival of a request to its turn.',
      QUEUE_BUCKETS_S,
    );
    this.firstTokens = histogram(
      'odmoe_time_to_first_token_seconds',
      'From the arrival of a request to its first token.',
      FIRST_TOKEN_BUCKETS_S,
    );
    this.laterTokens = histogram(
      'odmoe_time_per_output_token_seconds',
      'Mean time of each token behind the first, of answers that came to their end.',
      TOKEN_BUCKETS_S,
    );
    this.promptTokens = counter('odmoe_prompt_tokens_total', 'Tokens of prompts whose turn has come.');
    this.cachedTokens = counter(
      'odmoe_cached_prompt_tokens_total',
      'Of these, the ones that were not run, because an earlier prompt had begun with them.',
    );
    this.generatedTokens = counter('odmoe_generated_tokens_total', 'Tokens of answers.');
    this.activations = new Counter({
      name: 'odmoe_expert_activations_total',
      help: 'Experts that decode activated: predicted in_time, late, missed, or none where nobody predicted.',
      labelNames: ['prediction'],
      registers: [registry],
    });
    this.reloads = counter(
      'odmoe_expert_reloads_total',
      'Experts that decode had to load after the router had chosen.',
    );
    this.stalls = counter('odmoe_expert_stall_seconds_total', 'Time that answers waited for loads of experts.');
    this.proposed = counter('odmoe_draft_tokens_proposed_total', 'Drafted tokens that a pass verified.');
    this.accepted = counter('odmoe_draft_tokens_accepted_total', 'Drafted tokens that proved right.');
    this.draftsOfSources = verifiedDrafts(registry);
    this.requests.inc({ code: 'ok' }, 0);
    for (const prediction of ['in_time', 'late', 'missed', 'none']) this.activations.inc({ prediction }, 0);
  }

  admitted(promptTokens: number, queuedMs: number): void {
    this.promptTokens.inc(promptTokens);
    this.queue.observe(queuedMs / 1000);
  }

  firstToken(ttftMs: number): void {
    this.firstTokens.observe(ttftMs / 1000);
  }

  token(): void {
    this.generatedTokens.inc();
  }

  ended({ code, durationMs, tokens, timing, cost }: RequestEnd): void {
    this.requests.inc({ code });
    this.durations.observe({ code }, durationMs / 1000);
    if (code === 'ok' && tokens > 1) this.laterTokens.observe(timing.tpotMs / 1000);
    if (cost === null) return;
    const { activations, reloads, ioStallMs, drafts, draftsByMaker = [], cachedTokens } = cost;
    this.cachedTokens.inc(cachedTokens);
    this.stalls.inc(ioStallMs / 1000);
    this.activations.inc({ prediction: 'in_time' }, activations.inTime);
    this.activations.inc({ prediction: 'late' }, activations.late);
    this.activations.inc({ prediction: 'missed' }, activations.missed);
    this.activations.inc({ prediction: 'none' }, activations.unpredicted);
    this.reloads.inc(reloads);
    this.proposed.inc(drafts?.proposed ?? 0);
    this.accepted.inc(drafts?.accepted ?? 0);
    for (const [source, { proposed, accepted }] of draftsByMaker) {
      this.draftsOfSources.inc({ source, verdict: 'right' }, accepted);
      this.draftsOfSources.inc({ source, verdict: 'wrong' }, proposed - accepted);
    }
  }
}

function verifiedDrafts(registry: Registry): Counter<'source' | 'verdict'> {
  const drafts = new Counter({
    name: 'odmoe_draft_tokens_verified_total',
    help: 'Drafted tokens that a pass verified, by who drafted them and whether they proved right.',
    labelNames: ['source', 'verdict'] as const,
    registers: [registry],
  });
  for (const source of DRAFT_MAKERS)
    for (const verdict of ['right', 'wrong'] as const) drafts.inc({ source, verdict }, 0);
  return drafts;
}
