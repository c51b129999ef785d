package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster, key 60, versions 0 to 2.

func (b *Broker) describeCluster(r *request) reply {
	req := r.Request.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.ClusterAuthorizedOperations = noOperations
	resp.EndpointType = 1
	switch {
	case req.Version < 1 || req.EndpointType == 1:
	case req.EndpointType == 2:
		resp.ErrorCode, resp.ErrorMessage = kerr.MismatchedEndpointType.Code, kmsg.StringPtr("this is a broker's endpoint, not a controller's")
		return reply{resp: resp}
	default:
		resp.ErrorCode, resp.ErrorMessage = kerr.UnsupportedEndpointType.Code, kmsg.StringPtr("unknown endpoint type")
		return reply{resp: resp}
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	resp.ClusterID, resp.ControllerID = b.meta.view().ClusterID, nodeID
	node := kmsg.NewDescribeClusterResponseBroker()
	node.NodeID, node.Host, node.Port = nodeID, b.host, b.port
	resp.Brokers = append(resp.Brokers, node)
	return reply{resp: resp}
}
