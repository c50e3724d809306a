import { jsonProperties } from '../../shared/base/json/exact-json.js';
import { CustomInput } from './custom-input.js';
import { CUSTOM_INPUT, type CallForm } from './response-tools.js';

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

interface NamedCall {
  id: string;
  status: ItemStatus;
  call_id: string;
  name: string;
  /** Left out where the tool stands in none. */
  namespace?: string;
}

/** A call of a tool, as `output` lists it. */
export type CallItem =
  | ({ type: 'function_call'; arguments: string } & NamedCall)
  | ({ type: 'custom_tool_call'; input: string } & NamedCall)
  | {
      type: 'tool_search_call';
      id: string;
      status: ItemStatus;
      call_id: string;
      execution: 'client';
      arguments: Record<string, unknown>;
    };

/** An event of a call: its type, and its properties besides the item's place. */
export type CallEvent = [type: string, properties: object];

/** A call in an answer, in the form of its tool. `item` always has what came so far. */
export interface ResponseCall {
  readonly item: CallItem;
  /** Takes more of the arguments. */
  take(text: string): CallEvent[];
  /** Ends the arguments. */
  end(): CallEvent[];
}

/** `name`: the model's name of the tool; `form`: undefined where no such tool was offered; `id`: unique in the answer. */
export function openCall(id: string, callId: string, name: string, form: CallForm | undefined): ResponseCall {
  const namespace = form?.namespace ?? null;
  const named = {
    status: 'in_progress' as const,
    call_id: callId,
    name: form?.name ?? name,
    ...(namespace !== null && { namespace }),
  };
  switch (form?.kind) {
    case 'custom':
      return customCall({ type: 'custom_tool_call', id: `ctc_${id}`, ...named, input: '' });
    case 'search':
      return searchCall({
        type: 'tool_search_call',
        id: `tsc_${id}`,
        status: 'in_progress',
        call_id: callId,
        execution: 'client',
        arguments: {},
      });
    case 'function':
    case undefined:
      return functionCall({ type: 'function_call', id: `fc_${id}`, ...named, arguments: '' });
  }
}

function functionCall(item: Extract<CallItem, { type: 'function_call' }>): ResponseCall {
  return {
    item,
    take: (text) => {
      item.arguments += text;
      return [['response.function_call_arguments.delta', { delta: text }]];
    },
    end: () => [['response.function_call_arguments.done', { name: item.name, arguments: item.arguments }]],
  };
}

function customCall(item: Extract<CallItem, { type: 'custom_tool_call' }>): ResponseCall {
  const input = new CustomInput();
  const add = (delta: string): CallEvent[] => {
    item.input += delta;
    return delta === '' ? [] : [['response.custom_tool_call_input.delta', { delta }]];
  };
  return {
    item,
    take: (text) => add(input.take(text)),
    end: () => [...add(input.end()), ['response.custom_tool_call_input.done', { [CUSTOM_INPUT]: item.input }]],
  };
}

/** Such calls have no events of their own. */
function searchCall(item: Extract<CallItem, { type: 'tool_search_call' }>): ResponseCall {
  let written = '';
  return {
    item,
    take: (text) => {
      written += text;
      return [];
    },
    end: () => {
      if (jsonProperties(written) !== null) item.arguments = JSON.parse(written) as Record<string, unknown>;
      return [];
    },
  };
}
