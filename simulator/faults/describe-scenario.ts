import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { GenerateRequest, SamplingMessage } from '../../shared/wire/messages.js';
import { CLUSTER_GROUPS, unusualRows } from './drawn-rows.js';
import type { Fault, Scenario, ScenarioNode, ScenarioRequest } from './scenario.js';

/** Describes a scenario in lines for people. */
export function describeScenario(scenario: Scenario): string[] {
  const { seed, theme, hasAuthority, model, nodes, link, pace, requests, faults, calmMs } = scenario;
  return [
    `seed ${seed}${theme === 'none' ? '' : ` (${theme})`}: model ${model}, ${nodes.length} nodes${hasAuthority ? ' with an authority' : ''}, calm from ${calmMs} ms`,
    `links: ${fields(link)}; operations: ${fields(pace)}`,
    ...nodes.slice(0, 1).map(describeShared),
    ...nodes.map(describeNode),
    ...requests.map(describeRequest),
    ...faults.map(describeFault),
  ];
}

/** The settings that main decides for all nodes. */
function describeShared({ settings }: ScenarioNode): string {
  return `settings that are not the default: ${describeUnusual(settings, CLUSTER_GROUPS)}`;
}

function describeNode({ settings, startMs, wallSkewMs, fetches, isNewer }: ScenarioNode): string {
  const { id, role, main, device, mainAddress } = settings;
  const hasOwnWorker = role === 'main' && main.experts !== 'workers';
  const more = [
    ...(device.memoryBudgetBytes > 0 ? [`budget ${device.memoryBudgetBytes} bytes`] : []),
    ...(mainAddress !== null ? ['joins main'] : []),
    ...(fetches ? [settings.role === 'shadow' ? 'fetches the pack' : 'fetches its experts'] : []),
    ...(isNewer ? ['of a newer release'] : []),
    ...(startMs > 0 ? [`starts at ${startMs} ms`] : []),
    ...(wallSkewMs !== 0 ? [`wall clock off by ${wallSkewMs} ms`] : []),
  ];
  return `${id}: ${[describeUnusual(settings, hasOwnWorker ? ['main', 'worker'] : [role]), ...more].join(', ')}`;
}

function describeUnusual(settings: NodeSettings, groups: Parameters<typeof unusualRows>[1]): string {
  const unusual = unusualRows(settings, groups).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  return unusual.length === 0 ? 'none' : unusual.join(', ');
}

function describeRequest({ atMs, request, begins, follows, cancelAfterMs, readMs }: ScenarioRequest): string {
  const cancelled = cancelAfterMs === null ? '' : `, cancelled ${cancelAfterMs} ms later`;
  const turn = follows === null ? '' : ` behind ${promptOf(follows)} and its answer`;
  const beginning = begins === null ? '' : ` (begins as others do: ${begins}${turn})`;
  const slow = readMs === 0 ? '' : `, read at ${readMs} ms a token`;
  return `at ${atMs} ms: request for ${request.maxTokens} tokens of ${promptOf(request)}${beginning}, ${samplingOf(request)}${cancelled}${slow}`;
}

function promptOf(request: GenerateRequest): string {
  const { text, promptTokenIds, raw } = request;
  if (promptTokenIds.length > 0) return `${promptTokenIds.length} token ids`;
  if (request.messages.length > 0) return `messages ${JSON.stringify(request.messages.map(({ content }) => content))}`;
  return `${raw ? 'raw text' : 'a message'} ${JSON.stringify(text)}`;
}

function samplingOf({ sampling, stop, logprobs, ignoreEos, ...more }: GenerateRequest): string {
  const drawn = sampling === null ? 'sampling as the model says' : choiceOf(sampling);
  const stops = stop.length === 0 ? '' : `, stop ${JSON.stringify(stop)}`;
  const logprobsText =
    logprobs > 0 ? `, logprobs ${logprobs}${more.promptLogprobs === true ? ', of the prompt too' : ''}` : '';
  const shown = more.showSpecialTokens === true ? ', special tokens shown' : '';
  return `${drawn}${stops}${logprobsText}${shown}${ignoreEos ? ', past the end' : ''}`;
}

/** Greedy sampling only mentions options that change logits. */
function choiceOf({ logitBias = [], outputFormat = null, ...sampling }: SamplingMessage): string {
  const { repetitionPenalty, presencePenalty = 0, frequencyPenalty = 0 } = sampling;
  const penalties = { repetitionPenalty, presencePenalty, frequencyPenalty };
  const drawn = sampling.temperature === 0 ? `greedy, ${fields(penalties)}` : fields(sampling);
  const biases = logitBias.map(({ tokenId, bias }) => `, bias ${bias} of token ${tokenId}`).join('');
  return `${drawn}${biases}${outputFormat === null ? '' : `, as ${JSON.stringify(outputFormat.alternatives)}`}`;
}

function describeFault({ kind, atMs, forMs, node, peer }: Fault): string {
  return `at ${atMs} ms: ${kind} of ${node} (other end: ${peer}) for ${forMs} ms`;
}

function fields(values: object): string {
  return Object.entries(values)
    .map(([name, value]) => `${name} ${String(value)}`)
    .join(', ');
}
