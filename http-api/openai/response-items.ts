import type { ChatLogprob } from '../answer/logprob-entries.js';

type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** A part of an answer, as `output` lists it. */
export type OutputItem =
  | { type: 'reasoning'; id: string; status: ItemStatus; summary: never[]; content: ReasoningText[] }
  | { type: 'message'; id: string; status: ItemStatus; role: 'assistant'; content: OutputText[] }
  | { type: 'function_call'; id: string; status: ItemStatus; call_id: string; name: string; arguments: string };

export interface ReasoningText {
  type: 'reasoning_text';
  text: string;
}

export interface OutputText {
  type: 'output_text';
  text: string;
  annotations: never[];
  logprobs: ChatLogprob[];
}

export function messageItem(id: string): Extract<OutputItem, { type: 'message' }> {
  return { type: 'message', id: `msg_${id}`, status: 'in_progress', role: 'assistant', content: [] };
}

export function reasoningItem(id: string): Extract<OutputItem, { type: 'reasoning' }> {
  return { type: 'reasoning', id: `rs_${id}`, status: 'in_progress', summary: [], content: [] };
}

export function functionCallItem(
  id: string,
  callId: string,
  name: string,
): Extract<OutputItem, { type: 'function_call' }> {
  return { type: 'function_call', id: `fc_${id}`, status: 'in_progress', call_id: callId, name, arguments: '' };
}
