// A provider for tests: its objects are files. An object can be slow, and one that is being made is not interrupted,
// as with most clouds.
package main

import (
	"context"
	"errors"
	"io/fs"
	"log"
	"os"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

const lookAgain = 20 * time.Millisecond

func main() {
	options := providerserver.ServeOpts{Address: "berth.invalid/test/files"}
	if err := providerserver.Serve(context.Background(), func() provider.Provider { return &files{} }, options); err != nil {
		log.Fatal(err)
	}
}

type files struct{}

func (*files) Metadata(_ context.Context, _ provider.MetadataRequest, answer *provider.MetadataResponse) {
	answer.TypeName = "files"
}

func (*files) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse) {}

func (*files) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}

func (*files) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (*files) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &object{} }}
}

// object is one file. With `gate`, creating it writes `<path>.begun` and then waits until the file `gate` exists.
// With `fails`, creating it fails with that text.
type object struct{}

type model struct {
	Path    types.String `tfsdk:"path"`
	Content types.String `tfsdk:"content"`
	Gate    types.String `tfsdk:"gate"`
	Fails   types.String `tfsdk:"fails"`
}

func (*object) Metadata(_ context.Context, request resource.MetadataRequest, answer *resource.MetadataResponse) {
	answer.TypeName = request.ProviderTypeName + "_object"
}

func (*object) Schema(_ context.Context, _ resource.SchemaRequest, answer *resource.SchemaResponse) {
	replace := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	answer.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"path":    schema.StringAttribute{Required: true, PlanModifiers: replace},
		"content": schema.StringAttribute{Optional: true},
		"gate":    schema.StringAttribute{Optional: true},
		"fails":   schema.StringAttribute{Optional: true},
	}}
}

func (*object) Create(ctx context.Context, request resource.CreateRequest, answer *resource.CreateResponse) {
	var wanted model
	answer.Diagnostics.Append(request.Plan.Get(ctx, &wanted)...)
	if answer.Diagnostics.HasError() {
		return
	}
	if wanted.Fails.ValueString() != "" {
		answer.Diagnostics.AddError("The object cannot be made", wanted.Fails.ValueString())
		return
	}
	if err := wait(wanted); err == nil {
		err = os.WriteFile(wanted.Path.ValueString(), []byte(wanted.Content.ValueString()), 0o644)
		if err != nil {
			answer.Diagnostics.AddError("The object cannot be written", err.Error())
			return
		}
	} else {
		answer.Diagnostics.AddError("The object cannot be begun", err.Error())
		return
	}
	answer.Diagnostics.Append(answer.State.Set(ctx, &wanted)...)
}

// wait ends when the gate opens, and not when the request is cancelled.
func wait(wanted model) error {
	gate := wanted.Gate.ValueString()
	if gate == "" {
		return nil
	}
	if err := os.WriteFile(wanted.Path.ValueString()+".begun", nil, 0o644); err != nil {
		return err
	}
	for {
		_, err := os.Stat(gate)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(lookAgain)
	}
}

func (*object) Read(ctx context.Context, request resource.ReadRequest, answer *resource.ReadResponse) {
	var known model
	answer.Diagnostics.Append(request.State.Get(ctx, &known)...)
	if answer.Diagnostics.HasError() {
		return
	}
	content, err := os.ReadFile(known.Path.ValueString())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		answer.State.RemoveResource(ctx)
	case err != nil:
		answer.Diagnostics.AddError("The object cannot be read", err.Error())
	case string(content) != known.Content.ValueString():
		answer.Diagnostics.Append(answer.State.SetAttribute(ctx, path.Root("content"), string(content))...)
	}
}

func (*object) Update(ctx context.Context, request resource.UpdateRequest, answer *resource.UpdateResponse) {
	var wanted model
	answer.Diagnostics.Append(request.Plan.Get(ctx, &wanted)...)
	if answer.Diagnostics.HasError() {
		return
	}
	if err := os.WriteFile(wanted.Path.ValueString(), []byte(wanted.Content.ValueString()), 0o644); err != nil {
		answer.Diagnostics.AddError("The object cannot be written", err.Error())
		return
	}
	answer.Diagnostics.Append(answer.State.Set(ctx, &wanted)...)
}

func (*object) Delete(ctx context.Context, request resource.DeleteRequest, answer *resource.DeleteResponse) {
	var known model
	answer.Diagnostics.Append(request.State.Get(ctx, &known)...)
	if err := os.Remove(known.Path.ValueString()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		answer.Diagnostics.AddError("The object cannot be removed", err.Error())
	}
}
